//! The items of a queue as a database has them.

use std::collections::{HashSet, VecDeque};

use async_trait::async_trait;

use super::super::bucket::Bucket;
use super::super::{Kept, Name, Session};
use crate::decide::{Item, Load, Place, Shelf};
use crate::error::Result;
use crate::item::payload_hash;

/// Items that are read at a time.
const PAGE: u32 = 256;

/// Items that become something else by themselves in one transaction.
pub(crate) const STEP: u16 = 1_000;

/// The time when an item is due, and the row of its offer.
pub(crate) type Behind = (i64, i64);

/// Behind nothing.
const FIRST: Behind = (0, 0);

/// A database as queues use it, for one call.
#[async_trait]
pub(crate) trait Shelving: Session {
    /// The load of a queue when it last changed, and the next [`STEP`] items that are due by a time, behind one of them.
    async fn queue(&mut self, name: Name<'_>, now_us: i64, after: Behind) -> Result<(Kept, Vec<Item>)>;

    /// Items of a queue.
    async fn items(&mut self, name: Name<'_>, which: Which) -> Result<Vec<Item>>;

    /// The payloads of items, which have their rows in the ledger.
    async fn payloads(&mut self, name: Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>>;

    /// Puts items where their rows lead to. The queue's row is held.
    async fn put(&mut self, name: Name<'_>, putting: &Putting<'_>) -> Result<()>;
}

/// Which items: those that wait or are dead in the order in which they are taken, behind one of them.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    Front {
        after: Option<(u8, i64)>,
        most: u32,
    },
    /// Those that wait and are less important than a band, in the opposite order.
    Back {
        band: u8,
        after: Option<(u8, i64)>,
        most: u32,
    },
    Dead {
        after: Option<(u8, i64)>,
        most: u32,
    },
    /// The place of an offer.
    One(i64),
}

impl Which {
    /// The state that is asked for, of which band, behind which band and offer, and how many items.
    pub fn asked(self) -> (&'static str, i32, (i32, i64), i32) {
        let behind = |after: Option<(u8, i64)>, end| after.map_or((end, 0), |(band, seq)| (band.into(), seq));
        let most = |most: u32| i32::try_from(most).unwrap_or(i32::MAX);
        match self {
            Self::Front { after, most: n } => (Place::Waiting.as_str(), 0, behind(after, -1), most(n)),
            Self::Dead { after, most: n } => (Place::Dead.as_str(), 0, behind(after, -1), most(n)),
            Self::Back { band, after, most: n } => ("back", band.into(), behind(after, 256), most(n)),
            Self::One(seq) => ("one", 0, (0, seq), 1),
        }
    }
}

/// A payload, and what of it was recorded.
pub(crate) struct Stored {
    pub seq: i64,
    pub payload: Option<String>,
    pub recorded: Option<String>,
}

impl Stored {
    pub fn is_genuine(&self) -> bool {
        self.payload.as_deref().map(payload_hash) == self.recorded
    }

    pub fn value(&self) -> Option<serde_json::Value> {
        self.payload.as_deref().and_then(|payload| serde_json::from_str(payload).ok())
    }
}

/// The places that items come to.
pub(crate) struct Putting<'p> {
    pub items: Vec<Item>,
    /// The payload of the only new one.
    pub payload: Option<&'p str>,
    pub gone: Vec<i64>,
    /// The load of the queue then.
    pub load: Load,
    /// By when items have become something else without a row.
    pub settled_us: Option<i64>,
}

impl<'p> Putting<'p> {
    pub fn new(load: Load) -> Self {
        Self { items: Vec::new(), payload: None, gone: Vec::new(), load, settled_us: None }
    }

    pub fn change(&mut self, before: &Item, after: Option<Item>) {
        self.load = after.iter().fold(self.load.without(before), |load, item| load.with(item));
        match after {
            Some(item) => self.items.push(item),
            None => self.gone.push(before.seq),
        }
    }

    pub fn add(&mut self, item: Option<Item>, payload: Option<&'p str>) {
        if let Some(item) = item {
            self.load = self.load.with(&item);
            self.items.push(item);
            self.payload = payload;
        }
    }
}

/// The items that became something else by themselves, and what they became. They are put down with a row: the clock may go
/// back, and then a row behind must follow from the rows before it. Where they are too many for one transaction, some are put
/// down alone, and the queue remembers by when, so that no row comes before that.
pub(super) struct Due {
    putting: Putting<'static>,
}

impl Due {
    /// None where there are more, and a part of them was put down: commit, and come again.
    pub async fn of(
        session: &mut dyn Shelving,
        name: Name<'_>,
        bucket: &mut Bucket<'_>,
    ) -> Result<Option<Self>> {
        let (mut kept, mut due) = session.queue(name, bucket.now_us(), FIRST).await?;
        if let Some(settled_us) = kept.settled_us.filter(|us| *us > bucket.now_us()) {
            bucket.not_before(settled_us);
            (kept, due) = session.queue(name, settled_us, FIRST).await?;
        }
        let mut putting = Putting::new(kept.load);
        due.iter().for_each(|item| putting.change(item, item.at(bucket.now_us())));
        if due.len() < usize::from(STEP) {
            return Ok(Some(Self { putting }));
        }
        putting.settled_us = Some(bucket.now_us());
        session.put(name, &putting).await?;
        Ok(None)
    }

    /// The load of the queue then.
    pub fn load(&self) -> Load {
        self.putting.load
    }

    /// The items that are taken next, at most so many, before it is put down.
    pub async fn front(
        &self,
        session: &mut dyn Shelving,
        name: Name<'_>,
        most: u32,
    ) -> Result<VecDeque<Item>> {
        let Putting { items, gone, .. } = &self.putting;
        let seqs: HashSet<_> = items.iter().map(|item| item.seq).chain(gone.iter().copied()).collect();
        let read = most.saturating_add(u32::try_from(seqs.len()).unwrap_or(u32::MAX));
        let mut front = session.items(name, Which::Front { after: None, most: read }).await?;
        front.retain(|item| !seqs.contains(&item.seq));
        front.extend(items.iter().filter(|item| item.place == Place::Waiting));
        front.sort_by_key(|item| (item.band, item.seq));
        front.truncate(most as usize);
        Ok(front.into())
    }

    pub async fn put(&self, session: &mut dyn Shelving, name: Name<'_>) -> Result<()> {
        let Putting { items, gone, .. } = &self.putting;
        if items.is_empty() && gone.is_empty() { Ok(()) } else { session.put(name, &self.putting).await }
    }
}

/// The load of a queue at a time, and what has died in it by then and nobody has put down as dead.
pub(super) async fn looked_at(
    session: &mut dyn Shelving,
    name: Name<'_>,
    now_us: i64,
) -> Result<(Load, Vec<Item>)> {
    let (kept, mut due) = session.queue(name, now_us, FIRST).await?;
    let (mut load, mut died) = (kept.load, Vec::new());
    while let Some(last) = due.last() {
        let behind = (last.due_us.unwrap_or(now_us), last.seq);
        for item in &due {
            let after = item.at(now_us);
            load = after.iter().fold(load.without(item), |load, item| load.with(item));
            died.extend(after.filter(|item| item.place == Place::Dead));
        }
        due = session.queue(name, now_us, behind).await?.1;
    }
    Ok((load, died))
}

/// The part of a queue that a call looks at.
pub(super) struct Loaded {
    pub load: Load,
    pub front: VecDeque<Item>,
    back: Vec<Item>,
}

impl Loaded {
    pub fn new(load: Load) -> Self {
        Self { load, front: VecDeque::new(), back: Vec::new() }
    }

    /// Reads what waits and is less important than a band, until it comes to so many units.
    pub async fn read_back(
        &mut self,
        session: &mut dyn Shelving,
        name: Name<'_>,
        band: u8,
        units: i64,
    ) -> Result<()> {
        let mut after = None;
        while cost(self.back.iter()) < units {
            let page = session.items(name, Which::Back { band, after, most: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.band, last.seq));
            self.back.extend(page);
        }
        Ok(())
    }

    /// Reads what is taken next, until it comes to as much of some units as cannot make room.
    pub async fn read_front(&mut self, session: &mut dyn Shelving, name: Name<'_>, units: i64) -> Result<()> {
        let units = units.saturating_sub(cost(self.back.iter()));
        let mut after = None;
        while cost(self.front.iter()) < units {
            let page = session.items(name, Which::Front { after, most: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.band, last.seq));
            self.front.extend(page);
        }
        Ok(())
    }
}

impl Shelf for Loaded {
    fn load(&self) -> Load {
        self.load
    }

    fn front(&self) -> impl Iterator<Item = &Item> {
        self.front.iter()
    }

    fn back(&self, _: u8) -> impl Iterator<Item = &Item> {
        self.back.iter()
    }
}

fn cost<'i>(items: impl Iterator<Item = &'i Item>) -> i64 {
    items.fold(0, |cost, item| cost.saturating_add(item.cost))
}
