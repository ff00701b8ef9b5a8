//! The question of a request of Envoy, in tallygate's words.

use tallygate::policy::UNITS_MAX;
use tallygate::uuid::Uuid;
use tonic::Status;

use crate::mapping::{Mapping, Rule};
use crate::proto::RateLimitRequest;
use crate::proto::rate_limit_descriptor::Entry;

/// The most descriptors that a request has.
const DESCRIPTORS_MAX: usize = 100;

/// The question to the limiter.
#[derive(Debug)]
pub(crate) struct Ask {
    /// The result for each descriptor, in their order.
    pub descriptors: Vec<Found>,
    /// Each bucket once.
    pub buckets: Vec<Bucket>,
    /// The transaction that the request names.
    pub txn: Option<Uuid>,
    /// True when the hits are given back.
    pub gives_back: bool,
    /// The number of descriptors that brought a limit of their own, which was not looked at.
    pub overrides_ignored: u32,
}

/// The result for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Unlimited,
    /// The bucket of this number.
    Bucket(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub zone: String,
    pub key: String,
    pub cost: i64,
}

impl Ask {
    /// The question of `request`; `named` is the transaction that is named beside it.
    pub fn of(mapping: &Mapping, request: &RateLimitRequest, named: Option<Uuid>) -> Result<Self, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() {
            return Err(Status::invalid_argument("the domain is empty; name that of the rate limit filter"));
        }
        if !(1..=DESCRIPTORS_MAX).contains(&descriptors.len()) {
            let there = descriptors.len();
            return Err(Status::invalid_argument(format!(
                "{there} descriptors; a request has 1 to {DESCRIPTORS_MAX}"
            )));
        }
        let mut ask = Self {
            descriptors: Vec::with_capacity(descriptors.len()),
            buckets: Vec::new(),
            txn: named,
            gives_back: false,
            overrides_ignored: 0,
        };
        let mut spends = false;
        for (number, descriptor) in descriptors.iter().enumerate() {
            let names_txn = |entry: &&Entry| mapping.transaction.as_deref() == Some(entry.key.as_str());
            let (txns, entries): (Vec<_>, Vec<_>) = descriptor.entries.iter().partition(names_txn);
            for entry in txns {
                ask.name(&entry.value)?;
            }
            let found = mapping.find(domain, &entries);
            if descriptor.limit.is_some() {
                if found.is_none() {
                    return Err(Status::invalid_argument(format!(
                        "descriptor {number} brings a limit of its own, which is not supported, and is of no zone; \
                         map it to a zone"
                    )));
                }
                ask.overrides_ignored = ask.overrides_ignored.saturating_add(1);
            }
            let (zone, key) = match found {
                Some((Rule::Zone(zone), key)) => (zone, key),
                Some((Rule::Unlimited, _)) => {
                    ask.descriptors.push(Found::Unlimited);
                    continue;
                }
                None => {
                    ask.descriptors.push(Found::Nothing);
                    continue;
                }
            };
            let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(*hits_addend).max(1));
            // More than any zone holds is as much as any zone can be asked for: refused, it would pass where Envoy fails open.
            let cost = i64::try_from(hits).map_or(UNITS_MAX, |hits| hits.min(UNITS_MAX));
            match descriptor.is_negative_hits {
                true if cost > 0 => ask.gives_back = true,
                _ => spends = true,
            }
            ask.add(zone, key, cost);
        }
        if ask.gives_back && spends {
            return Err(Status::invalid_argument(
                "some descriptors give hits back and others do not; send them in requests of their own",
            ));
        }
        Ok(ask)
    }

    /// A bucket that is asked for twice is asked for the sum.
    fn add(&mut self, zone: &str, key: String, cost: i64) {
        let same = |bucket: &Bucket| bucket.zone == zone && bucket.key == key;
        let at = match self.buckets.iter().position(same) {
            Some(at) => {
                if let Some(bucket) = self.buckets.get_mut(at) {
                    bucket.cost = bucket.cost.saturating_add(cost).min(UNITS_MAX);
                }
                at
            }
            None => {
                self.buckets.push(Bucket { zone: zone.to_owned(), key, cost });
                self.buckets.len() - 1
            }
        };
        self.descriptors.push(Found::Bucket(at));
    }

    fn name(&mut self, value: &str) -> Result<(), Status> {
        let txn = transaction(value);
        if self.txn.is_some() && txn.is_some() && self.txn != txn {
            return Err(Status::invalid_argument("the request names two transactions; name one"));
        }
        self.txn = self.txn.or(txn);
        Ok(())
    }
}

/// The transaction that a text names. One that is no UUID names none: refused, it would pass where Envoy fails open.
pub(crate) fn transaction(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|txn| !txn.is_nil())
}
