//! A bucket goes from one database to another, with its chain unbroken.
//!
//! A head with `moved_to` decides nothing: every call about its bucket is refused. From before its first row arrives until
//! the source says that it has gone, the target's head has that mark, with the source's name. So the two never decide both:
//! at first only the source does, then for a moment neither, and in the end only the target. The steps, each committed
//! before the next begins, so that whoever is cut off between two goes on from there:
//!
//! 1. The target makes the mark, where there is nothing of the bucket.
//! 2. Rows are copied page by page, while the source goes on deciding.
//! 3. The source's row is locked; what came since is copied, with the head and what the bucket holds.
//! 4. The source makes the mark, and lets go of the row.
//! 5. The target takes the mark away.
//!
//! The rows stay where they were, as a chain that is closed: a ledger is only appended to.

mod arriving;

use std::collections::BTreeMap;

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
#[cfg(feature = "sqlite")]
use super::sqlite;
use super::{At, Bucket, Database, Range, Store, StoredHead, StoredItem, beginning, ending};
use crate::chain::{self, Hash};
use crate::decide::{Exception, Head};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::zone::ZoneVersion;

pub(super) use arriving::{Arriving, Lists, Stands, head, held, limited};

/// Rows that are copied at a time. The longest that there can be fit into one argument of a statement.
const PAGE: u32 = 1_000;

/// A bucket that is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving<'m> {
    pub zone_id: i32,
    pub zone: &'m str,
    pub key: &'m str,
    /// The names of the two databases.
    pub from: &'m str,
    pub to: &'m str,
}

/// Where a bucket is, as far as a database knows.
pub(crate) enum Standing {
    Here,
    /// The mark of another database, which has it, or to which it was left; and the rows that it had here.
    Moved(String, i64),
    Nothing,
}

impl Standing {
    fn of(head: StoredHead) -> Self {
        match head.moved_to {
            Some(moved_to) => Self::Moved(moved_to, head.head.seq),
            None if head.head.seq > 0 => Self::Here,
            None => Self::Nothing,
        }
    }
}

/// The row of a bucket, which is locked at the source until this is dropped, or the mark is made.
enum Holding<'s> {
    #[cfg(feature = "postgres")]
    Postgres(postgres::moving::Holding, std::marker::PhantomData<&'s ()>),
    #[cfg(feature = "mysql")]
    MySql(mysql::moving::Holding, std::marker::PhantomData<&'s ()>),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::moving::Holding<'s>),
    #[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
    None(std::convert::Infallible, std::marker::PhantomData<&'s ()>),
}

impl Store {
    /// The database that has a bucket while the list changes; None for this one. A bucket of which there is nothing here is
    /// left to the database to which its key will belong, or begun where that is this one.
    pub async fn place(&self, bucket: &Bucket) -> Result<Option<String>> {
        each!(self, s => s.place(bucket).await)
    }

    /// Marks a bucket of which there is nothing here as another database's. Nothing happens in it here any more.
    async fn mark(&self, bucket: &Bucket, to: &str) -> Result<()> {
        each!(self, s => s.mark(bucket, to).await)
    }

    /// Moves a bucket to another database, and tells how many rows were copied. One that was moved there before is let be;
    /// a move that was cut off is finished.
    pub async fn move_bucket(&self, to: &Self, moving: &Moving<'_>) -> Result<u64> {
        let bucket = (moving.zone_id, moving.key.to_owned());
        same_zone(self, to, moving).await?;
        if self.has_left(&bucket, moving).await? {
            to.take(&bucket, self).await?;
            return Ok(0);
        }
        if self.ledger_bucket(&bucket, beginning(), 1).await?.is_empty()
            && self.dropped_row(&bucket).await?.is_none()
        {
            let Moving { zone, key, from, .. } = moving;
            return Err(Error::invalid(format!(
                "there is no bucket {key:?} in zone {zone:?} of {from}; look at its name, and the zone's"
            )));
        }
        let mut copy = Copying { from: self, to, moving, bucket: &bucket, copied: 0 };
        let Some(mut head) = copy.begin().await? else {
            to.take(&bucket, self).await?;
            return Ok(0);
        };
        while let Some(next) = copy.page(&head).await? {
            head = next;
        }
        let holding = self.hold(&bucket).await?;
        // Somebody else may have finished it.
        if self.has_left(&bucket, moving).await? {
            holding.let_go();
            to.take(&bucket, self).await?;
            return Ok(copy.copied);
        }
        while let Some(next) = copy.page(&head).await? {
            head = next;
        }
        let last = copy.end(head).await?;
        holding.mark(&bucket, moving.to, &chain::moved(&last, moving.to)).await?;
        to.take(&bucket, self).await?;
        Ok(copy.copied)
    }

    /// The place of the bucket.
    pub async fn standing(&self, bucket: &Bucket) -> Result<Standing> {
        match self.head_row(bucket).await?.map(Standing::of) {
            // Upkeep may have removed its head.
            None | Some(Standing::Nothing) => {
                Ok(self.last_hash(bucket).await?.map_or(Standing::Nothing, |_| Standing::Here))
            }
            Some(standing) => Ok(standing),
        }
    }

    /// The next buckets of a range by their keys, and where they are: those that have a head, and those whose head upkeep has
    /// removed.
    pub async fn standings(&self, range: &Range) -> Result<Vec<(String, Standing)>> {
        let heads = self.heads(range, PAGE).await?;
        let mut pages =
            vec![heads.into_iter().map(|head| (head.key.clone(), Standing::of(head))).collect::<Vec<_>>()];
        if self.heads_removed(range.zone_id).await? {
            let dropped = self.dropped(range, PAGE).await?;
            pages.push(dropped.into_iter().map(|dropped| (dropped.key, Standing::Here)).collect());
            let (mut keys, mut rest) = (Vec::new(), range.clone());
            while keys.len() < PAGE as usize
                && let Some((key, _)) = self.ledger_range(&rest, 1).await?.pop()
            {
                rest = range.behind(&key);
                keys.push((key, Standing::Here));
            }
            pages.push(keys);
        }
        // No further than the page that ends first: behind it, another one may have more.
        let full = pages.iter().filter(|page| page.len() >= PAGE as usize);
        let end = full.filter_map(|page| page.last()).map(|(key, _)| key).min().cloned();
        let mut standings = BTreeMap::new();
        for (key, standing) in pages.into_iter().flatten() {
            if end.as_ref().is_none_or(|end| key <= *end) {
                standings.entry(key).or_insert(standing);
            }
        }
        Ok(standings.into_iter().collect())
    }

    /// Has the bucket been moved to where it is to go?
    async fn has_left(&self, bucket: &Bucket, moving: &Moving<'_>) -> Result<bool> {
        match self.head_row(bucket).await?.and_then(|head| head.moved_to) {
            Some(moved_to) if moved_to == moving.to => Ok(true),
            Some(moved_to) => Err(crate::shard::elsewhere(&moved_to)),
            None => Ok(false),
        }
    }

    /// Takes the mark away from a bucket of which all is here, since the source has made its own.
    async fn take(&self, bucket: &Bucket, from: &Self) -> Result<()> {
        let incomplete = || {
            Error::database(
                "the source says that the bucket was moved, and not all of it is here; verify both ledgers",
            )
        };
        if from.head_row(bucket).await?.is_some_and(|left| left.head.seq == 0) {
            // It was left: there never was anything of it.
            return Ok(());
        }
        let here = self.head_row(bucket).await?.ok_or_else(incomplete)?;
        if here.moved_to.is_none() {
            return Ok(());
        }
        let last = self.last_hash(bucket).await?.filter(|last| here.follows(last)).ok_or_else(incomplete)?;
        each!(self, s => s.open_moved(bucket, &here.row_hash, &last).await)
    }

    async fn hold(&self, bucket: &Bucket) -> Result<Holding<'_>> {
        Ok(match *self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres(ref store) => {
                Holding::Postgres(store.hold(bucket).await?, std::marker::PhantomData)
            }
            #[cfg(feature = "mysql")]
            Database::MySql(ref store) => Holding::MySql(store.hold(bucket).await?, std::marker::PhantomData),
            #[cfg(feature = "sqlite")]
            Database::Sqlite(ref store) => Holding::Sqlite(store.hold(bucket).await?),
        })
    }

    async fn arrive(&self, arriving: &Arriving<'_>) -> Result<()> {
        each!(self, s => s.arrive(arriving).await)
    }

    async fn head_row(&self, bucket: &Bucket) -> Result<Option<StoredHead>> {
        Ok(self.heads(&Range::only(bucket), 1).await?.pop())
    }

    async fn dropped_row(&self, bucket: &Bucket) -> Result<Option<StoredHead>> {
        Ok(self.dropped(&Range::only(bucket), 1).await?.pop())
    }

    /// The hash of the bucket's last row.
    async fn last_hash(&self, bucket: &Bucket) -> Result<Option<Hash>> {
        if let Some(last) = self.ledger_before(bucket, ending()).await? {
            return Ok(Some(last.row_hash));
        }
        Ok(self.dropped_row(bucket).await?.map(|dropped| dropped.row_hash))
    }
}

impl Holding<'_> {
    /// Leaves the bucket as it is.
    fn let_go(self) {}

    async fn mark(self, bucket: &Bucket, to: &str, hash: &Hash) -> Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(holding, _) => holding.mark(bucket, to, hash).await,
            #[cfg(feature = "mysql")]
            Self::MySql(holding, _) => holding.mark(bucket, to, hash).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(holding) => holding.mark(bucket, to, hash).await,
        }
    }
}

/// A bucket that is being copied.
struct Copying<'c> {
    from: &'c Store,
    to: &'c Store,
    moving: &'c Moving<'c>,
    bucket: &'c Bucket,
    copied: u64,
}

impl Copying<'_> {
    /// The head at the target, which has the mark: how far an earlier move has come, or nothing yet. None where somebody else
    /// has finished the move meanwhile: the source has made its mark before the target took its own away.
    async fn begin(&self) -> Result<Option<StoredHead>> {
        let Moving { zone, key, from, to, .. } = self.moving;
        let marked = async || {
            let head = self.to.head_row(self.bucket).await?;
            Ok::<_, Error>(head.filter(|head| head.moved_to.is_some()))
        };
        let mut head = marked().await?;
        if head.is_none() {
            self.to.mark(self.bucket, from).await?;
            head = marked().await?;
        }
        if head.is_none() && !self.from.has_left(self.bucket, self.moving).await? {
            return Err(Error::invalid(format!(
                "bucket {key:?} of zone {zone:?} has decided in {from} and in {to}; no one history can be made of two"
            )));
        }
        Ok(head)
    }

    /// Copies the rows behind the target's head, at most a page of them, and tells where it is then; None when there are none.
    async fn page(&mut self, head: &StoredHead) -> Result<Option<StoredHead>> {
        let (rows, dropped) = self.behind(head).await?;
        let Some(last) = rows.last() else {
            let Some(dropped) = dropped else { return Ok(None) };
            let next = self.marked(dropped.clone());
            self.arrive(head, &next, Some(&dropped), &rows, None).await?;
            return Ok(Some(next));
        };
        let salt = match &dropped {
            Some(dropped) => dropped.salt,
            None if head.head.seq > 0 => head.salt,
            None => rows.first().and_then(|first| first.salt),
        };
        let left = StoredHead {
            key: head.key.clone(),
            head: left_by(last),
            override_seq: None,
            holding: false,
            salt,
            row_hash: last.row_hash,
            moved_to: None,
            moved_by: None,
            shapes: Vec::new(),
        };
        let next = self.marked(left);
        self.arrive(head, &next, dropped.as_ref(), &rows, None).await?;
        self.copied += rows.len() as u64;
        Ok(Some(next))
    }

    /// Once all rows are there: the head as it is at the source, and what the bucket holds; the hash of the last row.
    async fn end(&self, head: StoredHead) -> Result<Hash> {
        let left = self.from.head_row(self.bucket).await?;
        let left = left.filter(|left| left.head.seq == head.head.seq && head.follows(&left.row_hash));
        let left = left.ok_or_else(|| self.gone())?;
        let last = left.row_hash;
        let (_, holds) = self.from.bucket_holds(self.bucket).await?;
        let standing = Stands {
            holds: &holds,
            kept: self.from.bucket_load(self.bucket).await?.1,
            items: self.items().await?,
        };
        self.arrive(&head, &self.marked(left), None, &[], Some(&standing)).await?;
        Ok(last)
    }

    async fn items(&self) -> Result<Vec<StoredItem>> {
        let mut items: Vec<StoredItem> = Vec::new();
        loop {
            let after = items.last().map_or(0, |last| last.item.seq);
            let page = self.from.bucket_items(self.bucket, after).await?;
            if page.is_empty() {
                return Ok(items);
            }
            items.extend(page);
        }
    }

    /// The source's rows behind a head of the target; and what rows left behind that were dropped before the first of them.
    async fn behind(&self, head: &StoredHead) -> Result<(Vec<LedgerRow>, Option<StoredHead>)> {
        let seq = head.head.seq;
        if seq == 0 {
            let rows = self.from.ledger_bucket(self.bucket, beginning(), PAGE).await?;
            let first = rows.first().map_or(0, |first| first.seq);
            let dropped = if first == 1 { None } else { self.from.dropped_row(self.bucket).await? };
            let before = dropped.as_ref().map_or(0, |dropped| dropped.head.seq);
            self.follow(&rows, before)?;
            return Ok((rows, dropped));
        }
        // With the row that is there already: is it the same?
        let time = |us| chrono::DateTime::from_timestamp_micros(us).unwrap_or_default();
        let at: At = (time(head.head.last_us), seq - 1);
        let mut rows = self.from.ledger_bucket(self.bucket, at, PAGE).await?;
        let here = rows.first().filter(|row| row.seq == seq).map(|row| row.row_hash);
        let same = match here {
            Some(hash) => {
                rows.remove(0);
                head.follows(&hash)
            }
            None => {
                let dropped = self.from.dropped_row(self.bucket).await?;
                dropped.is_some_and(|dropped| dropped.head.seq == seq && head.follows(&dropped.row_hash))
            }
        };
        let Moving { zone, key, from, to, .. } = self.moving;
        if !same {
            return Err(Error::invalid(format!(
                "what {to} has of bucket {key:?} in zone {zone:?} is no beginning of what {from} has: rows were dropped \
                 meanwhile, or it is another bucket; nothing was decided in it: erase it in {to}, and move again"
            )));
        }
        self.follow(&rows, seq)?;
        Ok((rows, None))
    }

    /// Rows may go while they are read.
    fn follow(&self, rows: &[LedgerRow], before: i64) -> Result<()> {
        let whole = rows.iter().zip(before + 1..).all(|(row, seq)| row.seq == seq);
        if whole { Ok(()) } else { Err(self.gone()) }
    }

    fn gone(&self) -> Error {
        let Moving { zone, key, from, .. } = self.moving;
        Error::transient(format!(
            "rows of bucket {key:?} in zone {zone:?} of {from} came or went while they were copied; move it again"
        ))
    }

    async fn arrive(
        &self,
        was: &StoredHead,
        head: &StoredHead,
        dropped: Option<&StoredHead>,
        rows: &[LedgerRow],
        stands: Option<&Stands<'_>>,
    ) -> Result<()> {
        let overrides: Vec<Exception> = match rows {
            [] => Vec::new(),
            [first, .., last] | [first @ last] => {
                let all = self.from.bucket_overrides(&Range::only(self.bucket)).await?;
                let all = all.into_iter().map(|(_, own)| own);
                all.filter(|own| (first.seq..=last.seq).contains(&own.seq)).collect()
            }
        };
        let begins = was.head.seq == 0;
        let arriving = Arriving {
            bucket: self.bucket,
            was: &was.row_hash,
            begins,
            head,
            dropped,
            rows,
            overrides,
            stands,
        };
        self.to.arrive(&arriving).await
    }

    /// With the mark that the bucket is still at the source.
    fn marked(&self, head: StoredHead) -> StoredHead {
        let from = self.moving.from;
        StoredHead { row_hash: chain::moved(&head.row_hash, from), moved_to: Some(from.to_owned()), ..head }
    }
}

/// Both must know the zone by the same number, and each version of it with the same policy from the same time on.
async fn same_zone(from: &Store, to: &Store, moving: &Moving<'_>) -> Result<()> {
    let Moving { zone_id, zone, from: from_name, to: to_name, .. } = *moving;
    // The name of the user who was logged in is each database's own.
    let nameless = |versions: Vec<ZoneVersion>| -> Vec<_> {
        versions.into_iter().map(|version| ZoneVersion { login: None, ..version }).collect()
    };
    let here = nameless(from.zone_versions(zone_id).await?);
    let there = nameless(to.zone_versions(zone_id).await?);
    if here == there && to.zone(zone).await?.is_some_and(|there| there.id == zone_id) {
        return Ok(());
    }
    let same = here.iter().zip(&there).take_while(|(here, there)| here == there).count();
    Err(Error::invalid(format!(
        "zone {zone:?}, number {zone_id}, has {} versions in {from_name} and {} in {to_name}, of which the first {same} are the \
         same; a bucket moves between databases that have the same zone, see docs/operations.md",
        here.len(),
        there.len()
    )))
}

/// The head that a row leaves behind, as far as the row says it.
fn left_by(row: &LedgerRow) -> Head {
    let LedgerRow { seq, at_us, spent_total, level, zone_version, strikes, .. } = *row;
    Head { seq, last_us: at_us, spent_total, level, zone_version, strikes, ..Head::default() }
}
