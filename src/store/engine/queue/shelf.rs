//! The items of a queue as a database has them.

use std::collections::{HashSet, VecDeque};

use super::super::{Name, Session};
use crate::decide::{Item, Load, Place, Shelf};
use crate::error::Result;
use crate::item::payload_hash;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use crate::store::list::List;

/// Items that are read at a time.
const PAGE: u32 = 256;

/// A database as queues use it, for one call.
pub(in crate::store) trait Shelving: Session {
    /// The load of a queue when it last changed, and the items that are due by a time.
    async fn queue(&mut self, name: Name<'_>, now_us: i64) -> Result<(Load, Vec<Item>)>;

    /// Items of a queue.
    async fn items(&mut self, name: Name<'_>, which: Which) -> Result<Vec<Item>>;

    /// The payloads of items, which have their rows in the ledger.
    async fn payloads(&mut self, name: Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>>;

    /// Puts items where their rows lead to. The queue's row is held.
    async fn put(&mut self, name: Name<'_>, putting: &Putting<'_>) -> Result<()>;
}

/// Which items: those that wait or are dead in the order in which they are taken, behind one of them.
#[derive(Clone, Copy)]
pub(in crate::store) enum Which {
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
pub(in crate::store) struct Stored {
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
pub(in crate::store) struct Putting<'p> {
    pub items: Vec<Item>,
    /// The payload of the only new one.
    pub payload: Option<&'p str>,
    pub gone: Vec<i64>,
    /// The load of the queue then.
    pub load: Load,
}

impl<'p> Putting<'p> {
    pub fn new(load: Load) -> Self {
        Self { items: Vec::new(), payload: None, gone: Vec::new(), load }
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

/// The items that became something else by themselves, and what they became. They are put down with a row only: the clock may
/// go back, and then a row behind must follow from the rows before it.
pub(super) struct Due {
    putting: Putting<'static>,
}

impl Due {
    pub async fn of(session: &mut impl Shelving, name: Name<'_>, now_us: i64) -> Result<Self> {
        let (load, due) = session.queue(name, now_us).await?;
        let mut putting = Putting::new(load);
        due.iter().for_each(|item| putting.change(item, item.at(now_us)));
        Ok(Self { putting })
    }

    /// The load of the queue then.
    pub fn load(&self) -> Load {
        self.putting.load
    }

    /// The items that are taken next, at most so many, before it is put down.
    pub async fn front(
        &self,
        session: &mut impl Shelving,
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

    pub async fn put(&self, session: &mut impl Shelving, name: Name<'_>) -> Result<()> {
        let Putting { items, gone, .. } = &self.putting;
        if items.is_empty() && gone.is_empty() { Ok(()) } else { session.put(name, &self.putting).await }
    }
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
        session: &mut impl Shelving,
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
    pub async fn read_front(
        &mut self,
        session: &mut impl Shelving,
        name: Name<'_>,
        units: i64,
    ) -> Result<()> {
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

/// Items as lists that a statement takes apart.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(in crate::store) fn listed(items: &[Item]) -> List {
    List::of(items.iter().map(|item| {
        [
            item.seq.into(),
            (&item.txn).into(),
            item.cost.into(),
            i32::from(item.band).into(),
            item.offered_us.into(),
            item.deadline_us.into(),
            item.place.as_str().into(),
            item.due_us.into(),
            item.takes.into(),
            item.last.into(),
            item.receipt.into(),
        ]
    }))
}

fn cost<'i>(items: impl Iterator<Item = &'i Item>) -> i64 {
    items.fold(0, |cost, item| cost.saturating_add(item.cost))
}
