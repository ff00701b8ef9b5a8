//! Reads the bytes that a row is hashed as, see `docs/chain.md`.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::chain::Hash;

/// The fields of a row, as its bytes say them.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub txn_id: Uuid,
    pub seq: i64,
    pub zone_version: i32,
    pub checks: i32,
    pub blocked: bool,
    pub cost: i64,
    pub spent: i64,
    pub remaining: i64,
    pub zone_limit: i64,
    pub retry_after_us: Option<i64>,
    pub decided_at: DateTime<Utc>,
    pub ends_at: Option<DateTime<Utc>>,
    pub kind: String,
    pub reason: String,
    pub member: Option<Hash>,
}

impl Link {
    /// None for what no row is hashed as.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let txn_id = Uuid::from_bytes(rest.take()?);
        let seq = rest.number()?;
        let zone_version = i32::from_be_bytes(rest.take()?);
        let checks = i32::from_be_bytes(rest.take()?);
        let [blocked, _critical] = rest.take()?;
        let (cost, spent, _spent_total) = (rest.number()?, rest.number()?, rest.number()?);
        let (remaining, zone_limit) = (rest.number()?, rest.number()?);
        let (retry_after_us, _delay_us, _level) = (rest.number_if()?, rest.number_if()?, rest.number_if()?);
        let (_strikes, _target_us) = (rest.number()?, rest.number_if()?);
        let decided_at = DateTime::from_timestamp_micros(rest.number()?)?;
        let ends_at = rest.number_if()?.map(DateTime::from_timestamp_micros);
        // The parts begin with a 0 or a 1, which no name has in it.
        let name = rest.0.iter().position(|byte| *byte < b' ')?;
        let (name, parts) = rest.0.split_at_checked(name)?;
        let (kind, reason) = std::str::from_utf8(name).ok()?.split_once('|')?;
        rest = Rest(parts);
        let member = rest.part()?;
        let [_note, _actor, _login]: [Option<Hash>; 3] = [rest.part()?, rest.part()?, rest.part()?];
        let _exception: Option<[u8; 33]> = rest.part()?;
        rest.0.is_empty().then_some(Self {
            txn_id,
            seq,
            zone_version,
            checks,
            blocked: blocked == 1,
            cost,
            spent,
            remaining,
            zone_limit,
            retry_after_us,
            decided_at,
            ends_at: ends_at.flatten(),
            kind: kind.to_owned(),
            reason: reason.to_owned(),
            member,
        })
    }
}

/// The bytes that were not read yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        taken.try_into().ok()
    }

    fn number(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn number_if(&mut self) -> Option<Option<i64>> {
        self.number().map(|number| (number != i64::MIN).then_some(number))
    }

    fn part<const N: usize>(&mut self) -> Option<Option<[u8; N]>> {
        match self.take()? {
            [0] => Some(None),
            [1] => self.take().map(Some),
            _ => None,
        }
    }
}
