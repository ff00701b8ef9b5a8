//! The answer to Envoy about decisions.

use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use tallygate::policy::{Algorithm, Mode};
use tallygate::{Decision, Policy, Reason};

use crate::ask::{Ask, Found};
use crate::proto::rate_limit_response::rate_limit::Unit;
use crate::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::proto::{RateLimitResponse, rate_limit_response};

/// A bucket, with what was decided about it.
pub(crate) struct Decided {
    pub decision: Decision,
    pub policy: Policy,
    pub cost: i64,
}

impl Decided {
    /// Is it over its limit? One that was only looked at is where nothing is left: the next one would not pass.
    pub fn is_over(&self) -> bool {
        let Self { decision, policy, cost } = self;
        let is_used_up = *cost == 0
            && decision.remaining == 0
            && decision.reason != Reason::Off
            && policy.mode() == Mode::Enforce;
        (decision.blocked && decision.reason != Reason::HeldBack) || is_used_up
    }

    /// Did it take anything?
    pub fn is_charged(&self) -> bool {
        let Decision { blocked, reason, .. } = &self.decision;
        !blocked && matches!(reason, Reason::WithinLimit | Reason::Soft)
    }

    fn status(&self) -> DescriptorStatus {
        let Self { decision, policy, .. } = self;
        let code = if self.is_over() { Code::OverLimit } else { Code::Ok };
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: narrow(decision.limit),
                unit: unit(decision, policy).into(),
                name: decision.zone.clone(),
            }),
            limit_remaining: narrow(decision.remaining),
            // Envoy reads whole seconds: rounded up, so that whoever comes then passes. The wait of a decision that is told again was
            // true when it was made.
            duration_until_reset: decision
                .retry_after_us
                .filter(|_| decision.blocked && !decision.replayed)
                .map(|us| Duration {
                    seconds: us.div_euclid(1_000_000) + i64::from(us.rem_euclid(1_000_000) > 0),
                    nanos: 0,
                }),
        }
    }
}

/// The answer to a request; what was decided is in the order of its buckets.
pub(crate) fn answer(ask: &Ask, decided: &[Decided]) -> RateLimitResponse {
    let is_over = decided.iter().any(Decided::is_over);
    let statuses = ask.descriptors.iter().map(|found| match found {
        Found::Bucket(at) => decided.get(*at).map(Decided::status).unwrap_or_default(),
        Found::Unlimited => passes(u32::MAX),
        Found::Nothing => passes(0),
    });
    RateLimitResponse {
        overall_code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        statuses: statuses.collect(),
        dynamic_metadata: metadata(ask, decided),
        ..RateLimitResponse::default()
    }
}

fn passes(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus {
        code: rate_limit_response::Code::Ok.into(),
        limit_remaining,
        ..DescriptorStatus::default()
    }
}

/// The unit of a limit that is so many in just that time. The limit of an override may be of another time.
fn unit(decision: &Decision, policy: &Policy) -> Unit {
    let is_rate = policy.limit() == policy.rate() && policy.algorithm() != Algorithm::Concurrency;
    if !is_rate || decision.limit != policy.limit() {
        return Unit::Unknown;
    }
    match policy.asked().window_us() {
        1_000_000 => Unit::Second,
        60_000_000 => Unit::Minute,
        3_600_000_000 => Unit::Hour,
        86_400_000_000 => Unit::Day,
        604_800_000_000 => Unit::Week,
        _ => Unit::Unknown,
    }
}

/// Which limit it was: the one that binds or, where all passed, the first that says something else than that the cost fitted.
fn metadata(ask: &Ask, decided: &[Decided]) -> Option<Struct> {
    let over = decided.iter().filter(|decided| decided.is_over());
    // None is the longest: it never passes. Of equals, the first.
    let binding = over.rev().max_by_key(|decided| decided.decision.retry_after_us.unwrap_or(i64::MAX));
    let telling = || decided.iter().find(|decided| decided.decision.reason != Reason::WithinLimit);
    let told = binding.or_else(telling).or(decided.first());
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let mut fields = Vec::new();
    if let Some(Decided { decision, .. }) = told {
        fields.push(("zone", text(&decision.zone)));
        fields.push(("reason", text(decision.reason.as_str())));
        fields.push(("version", Kind::NumberValue(decision.zone_version.into())));
        fields.push(("binding", Kind::BoolValue(binding.is_some())));
    }
    // One that was only looked at is in no ledger.
    if let Some(recorded) = decided.iter().find(|decided| decided.decision.seq.is_some()) {
        fields.push(("transaction", text(&recorded.decision.txn_id.to_string())));
    }
    if ask.overrides_ignored > 0 {
        fields.push(("overrides_ignored", Kind::NumberValue(ask.overrides_ignored.into())));
    }
    (!fields.is_empty()).then(|| structure([("tallygate", Kind::StructValue(structure(fields)))]))
}

fn structure<'n>(fields: impl IntoIterator<Item = (&'n str, Kind)>) -> Struct {
    let field = |(name, kind): (&str, _)| (name.to_owned(), Value { kind: Some(kind) });
    Struct { fields: fields.into_iter().map(field).collect() }
}

/// The number, as far as the protocol can say it.
fn narrow(units: i64) -> u32 {
    u32::try_from(units.max(0)).unwrap_or(u32::MAX)
}
