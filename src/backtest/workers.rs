//! Queues whose workers take what they may as soon as they may, and are done with it at once.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::recent::Recent;
use super::traffic::Request;
use super::{TIMES_US, failed, validate};
use crate::decide::{Ask, Bid, Bucket, Head, Item, Load, Shelf, Version, offer, take};
use crate::error::{Error, Result};
use crate::zone::{Policy, UNITS_MAX};

/// The queue of each key.
pub(super) struct Workers {
    version: [Version; 1],
    queues: HashMap<String, Queue>,
}

#[derive(Default)]
struct Queue {
    head: Head,
    /// The items that wait, by their bands and the rows of their offers, and the request of each.
    waiting: BTreeMap<(u8, i64), (Item, usize)>,
    load: Load,
}

impl Workers {
    pub fn new(policy: Policy) -> Result<Self> {
        policy.validate()?;
        Ok(Self { version: [policy.into()], queues: HashMap::new() })
    }

    /// The time when each request is taken; None where there is no room for it, where it is evicted, and where its turn never
    /// comes.
    pub fn turns(mut self, requests: &[Request]) -> Result<Vec<Option<i64>>> {
        let mut turns = vec![None; requests.len()];
        for (n, request) in requests.iter().enumerate() {
            let Request { at_us, key, cost, critical, .. } = request;
            validate(&Ask { cost: *cost, ..Ask::default() }, *at_us)?;
            if *cost == 0 {
                return Err(Error::invalid(format!("an item of cost 0 cannot wait; use 1 to {UNITS_MAX}")));
            }
            let queue = self.queues.entry(key.clone()).or_default();
            queue.work_off(&self.version, *at_us, &mut turns)?;
            queue.offer(&self.version, n, *cost, u8::from(!critical), *at_us)?;
            queue.work_off(&self.version, *at_us, &mut turns)?;
        }
        for queue in self.queues.values_mut() {
            queue.work_off(&self.version, *TIMES_US.end(), &mut turns)?;
        }
        Ok(turns)
    }
}

impl Queue {
    fn offer(&mut self, versions: &[Version], n: usize, cost: i64, band: u8, now_us: i64) -> Result<()> {
        let bid = Bid { txn: Uuid::nil(), cost, band, deadline_us: None, payload: false };
        let bucket = Bucket { versions, head: &self.head, holds: &[] };
        let offered = offer(bucket, &Recent::default(), self, bid, now_us).map_err(failed)?;
        for item in &offered.evicted {
            self.remove(item);
        }
        if let Some(item) = offered.item {
            self.load = self.load.with(&item);
            self.waiting.insert((item.band, item.seq), (item, n));
        }
        // Each eviction is a row.
        let evictions = i64::try_from(offered.evicted.len()).unwrap_or(i64::MAX);
        self.head = Head { seq: offered.head.seq.saturating_add(evictions), ..offered.head };
        Ok(())
    }

    /// Takes all items whose turn is not later than that.
    fn work_off(&mut self, versions: &[Version], until_us: i64, turns: &mut [Option<i64>]) -> Result<()> {
        let mut now_us = self.head.last_us;
        while now_us <= until_us {
            let bucket = Bucket { versions, head: &self.head, holds: &[] };
            match take(bucket, &Recent::default(), self, 1, now_us).map_err(failed)? {
                Ok(taken) => {
                    self.head = taken.head;
                    if let Some(turn) = self.remove(&taken.item).and_then(|n| turns.get_mut(n)) {
                        *turn = Some(now_us);
                    }
                }
                Err(Some(wait_us)) => now_us = now_us.saturating_add(wait_us),
                Err(None) => return Ok(()),
            }
        }
        Ok(())
    }

    fn remove(&mut self, item: &Item) -> Option<usize> {
        let (item, n) = self.waiting.remove(&(item.band, item.seq))?;
        self.load = self.load.without(&item);
        Some(n)
    }
}

impl Shelf for Queue {
    fn load(&self) -> Load {
        self.load
    }

    fn front(&self) -> impl Iterator<Item = &Item> {
        self.waiting.values().map(|(item, _)| item)
    }

    fn back(&self, band: u8) -> impl Iterator<Item = &Item> {
        self.waiting.range((band, i64::MAX)..).rev().map(|(_, (item, _))| item)
    }
}
