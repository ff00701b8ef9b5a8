//! The writes of a call: rows of the ledger, and the parts of a bucket that are not in them.

use uuid::Uuid;

use super::bucket::{Bucket, Mark, Turn};
use super::{Action, Name, Request, Taking, What};
use crate::chain::{End, Hash, Row};
use crate::decide::{Exception, Granted, Head, Hold, Shape, UnitsTaken};
use crate::entry::Kind;
use crate::lease::Want;
use crate::record;

/// Rows of every table, each in its order.
pub(crate) struct Writing<'w> {
    /// All buckets move, or none.
    pub together: bool,
    pub buckets: Vec<Moved<'w>>,
    pub rows: Vec<Written<'w>>,
    /// The holds that end by themselves, each with the place of its bucket among these; in place of what was to end of
    /// the same charge.
    pub holds: Vec<(usize, Hold)>,
    pub overrides: Vec<(usize, Exception)>,
    /// Of each bucket of the call, its place among these.
    places: Vec<Option<usize>>,
}

/// A bucket that rows are appended to.
pub(crate) struct Moved<'w> {
    pub name: Name<'w>,
    /// Its place in the call.
    pub place: usize,
    /// The database has no row of it.
    pub is_new: bool,
    /// Its row was removed, and must be made again as it was before.
    pub removed: bool,
    pub before: Head,
    pub before_hash: Hash,
    pub head: Head,
    /// It has holds, or had.
    pub holding: bool,
    /// The last row says all that changed in the head.
    pub by_row: bool,
    /// The place that its chain comes to.
    pub end: End,
    /// Its ended holds are of no more use to it.
    pub ended: bool,
    /// All that is known of the shapes of its requests, where a settlement taught one.
    pub shapes: Option<Vec<Shape>>,
}

/// A row of the ledger.
pub(crate) struct Written<'w> {
    /// The place of its bucket.
    pub bucket: usize,
    pub row: Row<'w>,
    /// Its transaction may have been decided in this bucket before.
    pub named: bool,
    /// The time of the row before it.
    pub before_us: Option<i64>,
    pub hash: Hash,
}

impl<'w> Writing<'w> {
    pub(super) fn new(buckets: &[Bucket<'w>]) -> Self {
        let mut moved = Vec::with_capacity(buckets.len());
        let places = buckets.iter().enumerate().map(|(n, bucket)| {
            let place = moved.len();
            moved.extend(bucket.moved(n));
            (moved.len() > place).then_some(place)
        });
        let places = places.collect();
        Self {
            together: false,
            buckets: moved,
            rows: Vec::new(),
            holds: Vec::new(),
            overrides: Vec::new(),
            places,
        }
    }

    /// The only row, where nothing of its bucket ends by itself.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn only_row(&self) -> Option<(Kind, &Moved<'w>, &Written<'w>)> {
        let ([moved], [written], []) = (&self.buckets[..], &self.rows[..], &self.holds[..]) else {
            return None;
        };
        (!moved.ended).then_some((written.row.kind, moved, written))
    }

    /// The place of a bucket of the call among those that move.
    pub fn place(&self, bucket: usize) -> Option<usize> {
        self.places.get(bucket).copied().flatten()
    }

    /// A check, and the ban that it brought about. With `checks`, so many of them that nobody decided.
    pub(super) fn check(&mut self, bucket: usize, request: &'w Request, checks: Option<i32>, turn: &Turn) {
        let (txn, outcome) = (request.txn, &turn.outcome);
        let kind = match (checks, request.ttl_us) {
            (Some(_), _) => Kind::Coalesced,
            (None, Some(_)) => Kind::Reserve,
            (None, None) => Kind::Check,
        };
        let row = Row {
            checks: checks.unwrap_or(1),
            critical: request.critical,
            cost: request.cost,
            member: request.about(),
            ..record::check(kind, txn, outcome)
        };
        self.row(bucket, turn.before_us(), !request.fresh, row);
        if let Some(until_us) = outcome.banned_until_us {
            let ban = record::ban(txn, until_us, &outcome.head, outcome.limit);
            self.row(bucket, Some(outcome.decided_us), false, ban);
        }
        self.hold(bucket, outcome.hold(request.member.as_deref()));
    }

    /// Writes an event besides checks; of an operator, who is logged in; of a settlement, the shape that it teaches.
    pub(super) fn mark(
        &mut self,
        bucket: usize,
        action: &'w Action,
        login: Option<&'w str>,
        shape: Option<&'w str>,
        mark: &Mark,
    ) {
        let Mark { happened, before_us, limit, remaining } = mark;
        let is_override = matches!(action.what, What::Override(Some(_)));
        let exception = happened.head.exception.filter(|_| is_override);
        let row = Row {
            member: shape,
            note: action.note.as_deref(),
            actor: action.actor.as_deref(),
            login: login.filter(|_| action.what.is_an_operators()),
            exception,
            ..record::event(action.what.kind(), action.txn, happened, *limit, *remaining)
        };
        self.row(bucket, *before_us, false, row);
        self.hold(bucket, happened.hold.clone());
        if let (Some(place), Some(exception)) = (self.place(bucket), exception) {
            self.overrides.push((place, exception));
        }
    }

    /// A lease of the only bucket.
    pub(super) fn lease(&mut self, want: &'w Want, txn: Uuid, granted: &Granted, before_us: Option<i64>) {
        let row = Row {
            checks: want.weight,
            band: Some(want.band),
            ..record::lease(txn, &want.client, want.wants, granted)
        };
        self.row(0, before_us, want.txn.is_some(), row);
        self.hold(0, granted.hold(&want.client));
    }

    /// Writes the units that are taken of the only bucket for local decisions.
    pub(super) fn take_units(&mut self, taking: &'w Taking, taken: &UnitsTaken, before_us: Option<i64>) {
        self.row(0, before_us, taking.again, record::units(taking.txn, taking.wants, taken));
    }

    /// Drops what has ended in a bucket and is of no more use to it.
    pub fn drop_ended(&mut self, bucket: usize) {
        if let Some(place) = self.place(bucket) {
            self.buckets[place].ended = true;
        }
    }

    /// Takes down what is known of the shapes of a bucket's requests by now.
    pub(super) fn teach(&mut self, bucket: usize, shapes: Vec<Shape>) {
        if let Some(place) = self.place(bucket) {
            self.buckets[place].shapes = Some(shapes);
        }
    }

    pub(super) fn row(&mut self, bucket: usize, before_us: Option<i64>, named: bool, row: Row<'w>) {
        if let Some(place) = self.place(bucket) {
            let hash = self.buckets[place].end.append(&row);
            self.rows.push(Written { bucket: place, row, named, before_us, hash });
        }
    }

    fn hold(&mut self, bucket: usize, hold: Option<Hold>) {
        self.holds.extend(self.place(bucket).zip(hold));
    }
}
