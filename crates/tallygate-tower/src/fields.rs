//! Header fields that tell a client where it stands.
//!
//! `RateLimit` and `RateLimit-Policy` are those of draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026), in the syntax of
//! structured fields (RFC 9651). `X-RateLimit-Limit`, `-Remaining` and `-Reset` are what was there before: numbers, the last
//! in seconds from now.

use base64::prelude::{BASE64_STANDARD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;
use tallygate::policy::{Algorithm, Mode};
use tallygate::{Decision, Policy, Reason};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The largest integer of a structured field.
const INTEGER_MAX: i64 = 999_999_999_999_999;

/// The header fields that answers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fields {
    /// None, but `Retry-After` where something was blocked.
    Off,
    /// Those of draft 11.
    #[default]
    Draft11,
    /// `X-RateLimit-*`, of the limit that is nearest to its end.
    Legacy,
    /// Both.
    Both,
}

/// The limits of one answer that a client may know of: none that is in shadow mode or off, or was not asked.
pub(crate) struct Shown<'a>(Vec<(&'a Decision, &'a Policy)>);

impl<'a> Shown<'a> {
    pub fn of(decided: impl Iterator<Item = (&'a Decision, &'a Policy)>) -> Self {
        let is_shown = |(decision, policy): &(&Decision, &Policy)| {
            policy.mode() == Mode::Enforce && decision.reason != Reason::Unchecked
        };
        Self(decided.filter(is_shown).collect())
    }

    /// Adds the fields; lists that are there are gone on with.
    pub fn write(&self, fields: Fields, secret: Option<&[u8]>, headers: &mut HeaderMap) {
        if matches!(fields, Fields::Draft11 | Fields::Both) {
            let (policies, limits): (Vec<_>, Vec<_>) = self.items(secret).unzip();
            for (name, items) in [(POLICY, policies), (LIMIT, limits)] {
                if let (false, Ok(value)) = (items.is_empty(), HeaderValue::try_from(items.join(", "))) {
                    headers.append(name, value);
                }
            }
        }
        let nearest = self.0.iter().min_by_key(|(decision, _)| (!decision.blocked, decision.remaining));
        if let (Fields::Legacy | Fields::Both, Some((decision, policy))) = (fields, nearest)
            && !headers.contains_key(&LEGACY[0])
        {
            let values = [Some(decision.limit), Some(decision.remaining), wait_s(decision, Some(policy))];
            for (name, value) in LEGACY.into_iter().zip(values) {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from(value));
                }
            }
        }
    }

    fn items(&self, secret: Option<&[u8]>) -> impl Iterator<Item = (String, String)> {
        self.0.iter().enumerate().filter_map(move |(n, (decision, policy))| {
            // Of buckets of one zone that cannot be told apart, the one that is nearest to its end.
            let nearness = |(decision, _): &(&Decision, &Policy)| (!decision.blocked, decision.remaining);
            let is_hidden = |(other, rival): (usize, &(&Decision, &Policy))| {
                rival.0.zone == decision.zone && (nearness(rival), other) < (nearness(&(decision, policy)), n)
            };
            if secret.is_none() && self.0.iter().enumerate().any(is_hidden) {
                return None;
            }
            let name = string(&decision.zone);
            let partition = secret.map(|secret| partition(secret, decision)).unwrap_or_default();
            let mut item = format!("{name};q={}", decision.limit.clamp(0, INTEGER_MAX));
            if let Some(window_s) = window_s(policy, decision.limit) {
                item.push_str(&format!(";w={window_s}"));
            }
            match policy.algorithm() {
                Algorithm::Concurrency => item.push_str(";qu=\"concurrent-requests\""),
                Algorithm::Distinct => item.push_str(";qu=\"tallygate-members\""),
                _ => {}
            }
            if let Some(soft) = policy.soft_rate() {
                item.push_str(&format!(";tallygate-soft={}", soft.clamp(0, INTEGER_MAX)));
            }
            let mut state = format!("{name};r={}", decision.remaining.clamp(0, INTEGER_MAX));
            let wait_s =
                wait_s(decision, Some(policy)).filter(|_| policy.algorithm() != Algorithm::Concurrency);
            if let Some(wait_s) = wait_s {
                state.push_str(&format!(";t={wait_s}"));
            }
            Some((item + &partition, state + &partition))
        })
    }
}

/// When to come again, in seconds; None where one of the limits can never pass, or was not asked anew.
pub(crate) fn retry_after_s<'a>(
    decided: impl Iterator<Item = (&'a Decision, Option<&'a Policy>)>,
) -> Option<i64> {
    let is_violated = |decision: &Decision| decision.blocked && decision.reason != Reason::HeldBack;
    let waits = decided
        .filter(|(decision, _)| is_violated(decision))
        .map(|(decision, policy)| wait_s(decision, policy));
    // Where one can never pass there is no time to name.
    waits.max_by_key(|wait| wait.unwrap_or(i64::MAX)).flatten()
}

/// The wait in whole seconds, at least 1; None where there is none that helps. By the policy, where it is known.
fn wait_s(decision: &Decision, policy: Option<&Policy>) -> Option<i64> {
    if decision.replayed {
        return None;
    }
    let promised = decision.retry_after_us.map(|us| up(us, 1_000_000).clamp(1, INTEGER_MAX));
    // The wait that a slot promises is until it ends by itself; it is free as soon as a request ends.
    let counts_slots = policy.is_some_and(|policy| policy.algorithm() == Algorithm::Concurrency);
    if counts_slots && decision.reason != Reason::Banned {
        return promised.map(|_| 1);
    }
    promised
}

/// In which time the whole limit comes back, in seconds; None where no time says it.
fn window_s(policy: &Policy, limit: i64) -> Option<i64> {
    let us = match policy.algorithm() {
        Algorithm::Concurrency => return None,
        _ if policy.by_calendar().is_some() => return None,
        // A bucket has a limit of its own; by which window is not known here.
        _ if limit != policy.limit() && limit != policy.limit() - policy.reserve() => return None,
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue | Algorithm::Uniform => {
            let us = i128::from(limit) * i128::from(policy.window_us()) / i128::from(policy.rate().max(1));
            i64::try_from(us).unwrap_or(i64::MAX)
        }
        _ => policy.asked().window_us(),
    };
    Some(up(us, 1_000_000).clamp(1, INTEGER_MAX))
}

fn up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by > 0)
}

/// A name as a string of a structured field; what is no printable ASCII is written as in URLs.
fn string(name: &str) -> String {
    let mut text = String::from('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            0x20..=0x7e if byte != b'%' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text.push('"');
    text
}

/// Which bucket it is, for who cannot know its key.
fn partition(secret: &[u8], decision: &Decision) -> String {
    let hash = keyed_hash(secret, &[decision.zone.as_bytes(), decision.key.as_bytes()]);
    format!(";pk=:{}:", BASE64_STANDARD.encode(&hash[..12]))
}

/// HMAC-SHA-256 (RFC 2104) over words, each after its length.
pub(crate) fn keyed_hash(secret: &[u8], words: &[&[u8]]) -> [u8; 32] {
    // A key of any length is good.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return [0; 32] };
    for word in words {
        mac.update(&u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(word);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser};
    use tallygate::policy::CalendarUnit;
    use tallygate::uuid::Uuid;

    use super::*;

    fn decision(zone: &str, key: &str, limit: i64, remaining: i64, wait_us: Option<i64>) -> Decision {
        Decision {
            zone: zone.to_owned(),
            key: key.to_owned(),
            txn_id: Uuid::nil(),
            blocked: wait_us.is_some(),
            reason: if wait_us.is_some() { Reason::OverLimit } else { Reason::WithinLimit },
            limit,
            remaining,
            retry_after_us: wait_us,
            delay_us: None,
            ends_at: None,
            seq: Some(1),
            zone_version: 1,
            decided_at: "2026-11-23T12:00:00Z".parse().unwrap(),
            replayed: false,
            local: None,
        }
    }

    fn written(decided: &[(&Decision, &Policy)], fields: Fields, secret: Option<&[u8]>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        Shown::of(decided.iter().copied()).write(fields, secret, &mut headers);
        headers
    }

    /// The parameters that a list has for each name.
    fn read(headers: &HeaderMap, name: &HeaderName) -> Vec<(String, Vec<(String, BareItem)>)> {
        let Some(value) = headers.get(name) else { return Vec::new() };
        let list = Parser::new(value.to_str().unwrap()).parse::<List>().unwrap();
        let item = |entry: ListEntry| match entry {
            ListEntry::Item(item) => {
                let BareItem::String(name) = item.bare_item else { panic!("no string") };
                let of = item.params.into_iter().map(|(name, value)| (name.as_str().to_owned(), value));
                (name.as_str().to_owned(), of.collect())
            }
            ListEntry::InnerList(_) => panic!("no item"),
        };
        list.into_iter().map(item).collect()
    }

    #[test]
    fn each_algorithm_says_its_window() {
        let minute = Duration::from_secs(60);
        for (policy, expected) in [
            (Policy::sliding_log(5, minute), "\"z\";q=5;w=60"),
            (Policy::fixed_window(5, Duration::from_millis(1_500)), "\"z\";q=5;w=2"),
            // Ten at once, one each twelve seconds: all of it comes back in two minutes.
            (Policy::token_bucket(5, minute, Some(10)), "\"z\";q=10;w=120"),
            (Policy::calendar(5, CalendarUnit::Month, "UTC".parse().unwrap()), "\"z\";q=5"),
            (Policy::uniform(100, Duration::from_secs(10)), "\"z\";q=1;w=1"),
            (Policy::concurrency(5, minute), "\"z\";q=5;qu=\"concurrent-requests\""),
            (Policy::distinct(5, minute), "\"z\";q=5;w=60;qu=\"tallygate-members\""),
        ] {
            let policy = policy.unwrap();
            let headers =
                written(&[(&decision("z", "k", policy.limit(), 1, None), &policy)], Fields::Draft11, None);
            assert_eq!(headers[&POLICY], expected);
        }
        // A bucket with a limit of its own.
        let policy = Policy::sliding_log(5, minute).unwrap();
        let headers = written(&[(&decision("z", "k", 500, 1, None), &policy)], Fields::Draft11, None);
        assert_eq!(headers[&POLICY], "\"z\";q=500");
    }

    #[test]
    fn buckets_of_one_zone_are_told_apart_or_the_nearest_is_told() {
        let policy = Policy::sliding_log(9, Duration::from_secs(60)).unwrap();
        let buckets = [("a", 7, None), ("b", 2, None), ("c", 2, Some(1)), ("d", 0, None)];
        let decisions: Vec<_> = buckets
            .iter()
            .map(|(key, remaining, wait_us)| decision("z", key, 9, *remaining, *wait_us))
            .collect();
        let decided: Vec<_> = decisions.iter().map(|decision| (decision, &policy)).collect();
        let headers = written(&decided, Fields::Both, None);
        assert_eq!(headers[&LIMIT], "\"z\";r=2;t=1");
        assert_eq!(headers[&LEGACY[1]], "2");
        let items = read(&written(&decided, Fields::Draft11, Some(b"secret")), &LIMIT);
        let keys: std::collections::BTreeSet<_> =
            items.iter().map(|(_, of)| format!("{:?}", of.last())).collect();
        assert_eq!((items.len(), keys.len()), (4, 4));
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        /// Any name of a zone and any decision can be read by somebody else's parser, and is found there.
        #[test]
        fn what_is_written_can_be_read(
            zones in proptest::collection::vec(("\\PC{1,20}|.{1,20}", 0..=i64::MAX, 0..=i64::MAX, proptest::option::of(1..=i64::MAX)), 1..5),
            soft: bool,
            secret in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        ) {
            let policy = Policy::sliding_log(9, Duration::from_secs(60)).unwrap().with_soft_rate(soft.then_some(3));
            let decisions: Vec<_> = zones
                .iter()
                .map(|(zone, limit, remaining, wait_us)| decision(zone, "key", *limit, *remaining, *wait_us))
                .collect();
            let decided: Vec<_> = decisions.iter().map(|decision| (decision, &policy)).collect();
            let headers = written(&decided, Fields::Both, secret.as_deref());
            let (policies, limits) = (read(&headers, &POLICY), read(&headers, &LIMIT));
            let names = |list: &[(String, _)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            prop_assert_eq!(names(&policies), names(&limits));
            prop_assert!(!limits.is_empty());
            // Not before what any of them says.
            let longest = decided.iter().filter_map(|(decision, policy)| wait_s(decision, Some(policy))).max();
            let told = decided.iter().map(|&(decision, policy)| (decision, Some(policy)));
            prop_assert_eq!(retry_after_s(told), longest);
            prop_assert!(longest.is_none_or(|longest| longest >= 1));
        }
    }
}
