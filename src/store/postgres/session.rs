//! The engine's hands on PostgreSQL: two routines, one that tells what there is and one that appends.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::PgRecordEncoder;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo};
use sqlx::{Encode, PgConnection, Row, Type};

use super::check::Owner;
use super::ledger::ledger_row;
use super::{Moment, error, text_if, time, time_if};
use crate::chain::End;
use crate::decide::{Carried, Exception, Head, Hold, Shape, Standing, Version};
use crate::engine::{
    self, Appended, Asked, Charged, Fate, Held, Loaded, Moved, Name, Process, Question, Range, Wanted,
    Writing, Written, from_us, of_bucket,
};
use crate::entry::Kind;
use crate::error::{Error, Result};
use crate::store::fault::no_operator;
use crate::store::shapes::{shapes_of, text_of};
use crate::store::{hash_of, rows_of, salt_of};
use crate::zone::{BanRule, Calendar, Limit, Policy, Queueing, Sharing};

/// A connection, and how a call goes about the buckets.
pub(super) struct Session<'c> {
    pub connection: &'c mut PgConnection,
    pub process: &'c Process,
    /// Hold them from the first look on, in a transaction that is open.
    pub lock: bool,
    /// Do not wait for those that somebody else holds, and move those that can be moved; else all move or none.
    pub skip_locked: bool,
    pub owner: Owner,
}

#[async_trait]
impl engine::Session for Session<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        let names = wanted.names;
        let step = self.at_once(names.len());
        let (mut rows, mut past) = (Vec::with_capacity(names.len()), Vec::new());
        for (at, some) in (0..).step_by(step).zip(names.chunks(step)) {
            let txns: Vec<_> = wanted
                .txns
                .iter()
                .enumerate()
                .filter(|(_, (name, _))| (at..at + step).contains(name))
                .collect();
            let moves = wanted.moves.iter().skip(at).take(step).map(|moves| self.lock && *moves);
            let named = || txns.iter().map(|(_, (name, _))| names[*name]);
            let of = sqlx::query(include_str!("engine_holds.sql"))
                .bind(some.iter().map(|name| name.0).collect::<Vec<_>>())
                .bind(some.iter().map(|name| name.1).collect::<Vec<_>>())
                .bind(wanted.window_us)
                .bind(moves.collect::<Vec<_>>())
                .bind(self.owner.lock_wait_ms())
                .bind(named().map(|name| name.0).collect::<Vec<_>>())
                .bind(named().map(|name| name.1).collect::<Vec<_>>())
                .bind(txns.iter().map(|(_, (_, txn))| *txn).collect::<Vec<_>>())
                .fetch_all(&mut *self.connection)
                .await
                .map_err(error)?;
            let Some(first) = of.first().filter(|_| of.len() == some.len()) else {
                return Err(Error::database(format!("{} buckets got {} heads", some.len(), of.len())));
            };
            let places: Option<Vec<i32>> = get!(first, "past");
            for place in places.into_iter().flatten() {
                let txn = usize::try_from(place - 1).ok().and_then(|place| txns.get(place));
                past.push(txn.ok_or_else(|| Error::database("a transaction that was not asked for"))?.0);
            }
            rows.extend(of);
        }
        let Some(last) = rows.last() else { return Err(Error::database("no bucket was asked for")) };
        let now_us = time(last, "now")?.timestamp_micros();
        let mut held = Held { now_us, heads: Vec::with_capacity(rows.len()), ..Held::default() };
        let mut in_force: Vec<Option<i32>> = Vec::with_capacity(rows.len());
        for (n, row) in rows.iter().enumerate() {
            let loaded = loaded(row).map_err(of_bucket("zone_bucket_lock", names[n]))?;
            in_force.push(get!(row, "version"));
            if loaded.holding {
                held.holds.insert(n, holds(row).map_err(of_bucket("zone_hold", names[n]))?);
            }
            let total: Option<i64> = get!(row, "total");
            if let Some(total) = total {
                held.answers.push((
                    n,
                    Question::TotalBefore(time(row, "total_at")?.timestamp_micros()),
                    total,
                ));
            }
            held.heads.push(loaded);
        }
        for (zone_id, range) in Range::of_zones(names, &held.heads, &in_force) {
            let versions = self.versions(zone_id, &range).await?;
            held.versions.insert(zone_id, versions);
        }
        if !past.is_empty() {
            let named = || past.iter().map(|&txn| names[wanted.txns[txn].0]);
            let rows = sqlx::query(include_str!("engine_past.sql"))
                .bind(named().map(|name| name.0).collect::<Vec<_>>())
                .bind(named().map(|name| name.1).collect::<Vec<_>>())
                .bind(past.iter().map(|&txn| wanted.txns[txn].1).collect::<Vec<_>>())
                .fetch_all(&mut *self.connection)
                .await
                .map_err(error)?;
            for row in &rows {
                let place: i32 = get!(row, "place");
                let txn = usize::try_from(place - 1).ok().and_then(|place| past.get(place));
                held.past.extend(txn.map(|&txn| Ok::<_, Error>((txn, ledger_row(row)?))).transpose()?);
            }
        }
        Ok(held)
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        let (mut kinds, mut numbers, mut after_us, mut until_us) =
            <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        for (kind, number, between) in questions.iter().map(|asked| asked.question.asked()) {
            kinds.push(kind);
            numbers.push(number);
            after_us.push(between.map(|(after_us, _)| after_us));
            until_us.push(between.map(|(_, until_us)| until_us));
        }
        sqlx::query_scalar("select zone_engine_ask($1, $2, $3, $4, $5, $6)")
            .bind(questions.iter().map(|asked| asked.name.0).collect::<Vec<_>>())
            .bind(questions.iter().map(|asked| asked.name.1).collect::<Vec<_>>())
            .bind(kinds)
            .bind(numbers)
            .bind(after_us)
            .bind(until_us)
            .fetch_one(&mut *self.connection)
            .await
            .map_err(error)
    }

    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>> {
        let rows = sqlx::query(
            "select c.place, c.created_at, c.spent, c.spent_total from zone_engine_charges($1, $2, $3, $4) c",
        )
        .bind(windows.iter().map(|(name, _)| name.0).collect::<Vec<_>>())
        .bind(windows.iter().map(|(name, _)| name.1).collect::<Vec<_>>())
        .bind(windows.iter().map(|(_, us)| from_us(*us)).collect::<Result<Vec<_>>>()?)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_all(&mut *self.connection)
        .await
        .map_err(error)?;
        let mut charges = vec![Vec::new(); windows.len()];
        for row in &rows {
            let place: i32 = get!(row, "place");
            let of = usize::try_from(place - 1).ok().and_then(|place| charges.get_mut(place));
            let of: &mut Vec<Charged> =
                of.ok_or_else(|| Error::database("a bucket that was not asked for"))?;
            of.push((
                time(row, "created_at")?.timestamp_micros(),
                get!(row, "spent"),
                get!(row, "spent_total"),
            ));
        }
        Ok(charges)
    }

    async fn leases(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Standing>> {
        let rows = sqlx::query(include_str!("engine_leases.sql")).bind(zone_id).bind(key);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows_of("zone_txn", &rows, |row| standing!(row))
    }

    async fn shapes(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Shape>> {
        let shapes = sqlx::query_scalar("select zone_engine_shapes($1, $2)").bind(zone_id).bind(key);
        let shapes: Option<String> = shapes.fetch_one(&mut *self.connection).await.map_err(error)?;
        shapes_of(shapes.as_deref())
    }

    async fn login(&mut self) -> Result<Option<String>> {
        let login = sqlx::query_scalar(include_str!("operator_login.sql"));
        let login: Option<String> = login.fetch_optional(&mut *self.connection).await.map_err(error)?;
        login.ok_or_else(no_operator).map(Some)
    }

    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        match writing.only_row() {
            Some((Kind::Check | Kind::Coalesced | Kind::Unchecked, moved, written)) => {
                let query = sqlx::query(include_str!("engine_append_one.sql"));
                let query = bind_append_one!(query, moved, written, from_us)
                    .bind(self.skip_locked)
                    .bind(self.owner.lock_wait_ms())
                    .bind(self.owner.is_call());
                return told(query.fetch_one(&mut *self.connection).await, 1);
            }
            Some((Kind::Ban | Kind::Unban | Kind::Override | Kind::OverrideEnd, moved, written)) => {
                let query = sqlx::query(include_str!("operator_append.sql"));
                let query = bind_operator_append!(query, moved, written, from_us);
                return told(query.fetch_one(&mut *self.connection).await, 1);
            }
            _ => {}
        }
        let (buckets, mut rows) = (&writing.buckets, writing.rows.iter().collect::<Vec<_>>());
        rows.sort_by_key(|row| row.bucket);
        let step = self.at_once(buckets.len());
        let mut appended = Appended { now_us: None, fates: Vec::with_capacity(buckets.len()) };
        for (first, some) in (0..).step_by(step).zip(buckets.chunks(step)) {
            let is_of = |bucket: usize| (first..first + step).contains(&bucket);
            let of = rows.iter().filter(|row| is_of(row.bucket));
            let holds = writing.holds.iter().filter(|(bucket, _)| is_of(*bucket));
            let row =
                sqlx::query("select a.now, a.fates from zone_engine_append($1, $2, $3, $4, $5, $6, $7) a")
                    .bind(some.iter().map(BucketHead).collect::<Vec<_>>())
                    .bind(of.map(|written| LedgerRow { buckets, first, written }).collect::<Vec<_>>())
                    .bind(
                        holds
                            .map(|(bucket, hold)| Part { buckets, first, bucket: *bucket, hold })
                            .collect::<Vec<_>>(),
                    )
                    .bind(writing.together || !self.skip_locked)
                    .bind(self.skip_locked)
                    .bind(self.owner.lock_wait_ms())
                    .bind(self.owner.is_call())
                    .fetch_one(&mut *self.connection)
                    .await;
            let told = told(row, some.len())?;
            let Some(now_us) = told.now_us else {
                return Ok(Appended { now_us: None, fates: vec![told.fates[0]; buckets.len()] });
            };
            appended.now_us = Some(now_us);
            appended.fates.extend(told.fates);
        }
        Ok(appended)
    }
}

impl Session<'_> {
    /// The number of buckets of so many that are asked about, or moved, by one call.
    fn at_once(&self, buckets: usize) -> usize {
        if self.process.is_spread() { 1 } else { buckets.max(1) }
    }

    async fn versions(&mut self, zone_id: i32, range: &Range) -> Result<Arc<[Version]>> {
        if let Some(known) = self.process.policies.known_of(zone_id, range) {
            return Ok(known);
        }
        let versions = sqlx::query(include_str!("engine_versions.sql")).bind(zone_id).bind(range.from);
        let rows = versions.fetch_all(&mut *self.connection).await.map_err(error)?;
        let keep = self.owner.is_call();
        self.process.policies.learn(zone_id, range, rows_of("zone_version", &rows, version), keep)
    }
}

/// The answer of an append to so many buckets, which may be that nothing was done.
fn told(appended: sqlx::Result<PgRow>, buckets: usize) -> Result<Appended> {
    let nothing = |fate| Ok(Appended { now_us: None, fates: vec![fate; buckets] });
    let row = &match appended {
        Err(sqlx::Error::Database(fault)) if fault.code().as_deref() == Some("TG009") => {
            return nothing(Fate::Outdated);
        }
        Err(sqlx::Error::Database(fault)) if fault.code().as_deref() == Some("TG010") => {
            return nothing(Fate::Stale);
        }
        appended => appended.map_err(error)?,
    };
    let fates: Vec<i32> = get!(row, "fates");
    Ok(Appended {
        now_us: Some(time(row, "now")?.timestamp_micros()),
        fates: fates.into_iter().map(Fate::told).collect(),
    })
}

fn version(row: &PgRow) -> Result<Version> {
    Ok(Version {
        version: counted!(row, "version"),
        policy: policy!(row)?,
        changed_us: time(row, "changed_at")?.timestamp_micros(),
    })
}

fn us_if(row: &PgRow, column: &str) -> Result<Option<i64>> {
    Ok(time_if(row, column)?.map(|at| at.timestamp_micros()))
}

fn loaded(row: &PgRow) -> Result<Loaded> {
    let seq: Option<i64> = counted!(row, "seq");
    let Some(seq) = seq else { return Ok(Loaded::default()) };
    let zone_version: Option<i32> = counted!(row, "zone_version");
    let mut head = Head {
        seq,
        last_us: us_if(row, "last_at")?.unwrap_or_default(),
        spent_total: counted!(row, "spent_total"),
        level: counted!(row, "level"),
        zone_version: zone_version.unwrap_or_default(),
        strikes: counted!(row, "strikes"),
        ..Head::default()
    };
    let salt: Option<&[u8]> = get!(row, "salt");
    let end = Some(End { salt: salt.map(salt_of).transpose()?, hash: hash_of(get!(row, "row_hash"))? });
    let more: Option<bool> = get!(row, "more");
    if more != Some(true) {
        return Ok(Loaded { head, end, ..Loaded::default() });
    }
    head.banned_until_us = us_if(row, "banned_until")?;
    head.bans = counted!(row, "bans");
    head.ban_strikes = counted!(row, "ban_strikes");
    if let Some(at_us) = us_if(row, "carried_at")? {
        let (amount, total, seq) =
            (counted!(row, "carried"), counted!(row, "carried_total"), counted!(row, "carried_seq"));
        head.carried = Some(Carried { at_us, amount, total, seq });
    }
    let override_seq: Option<i64> = counted!(row, "override_seq");
    if let Some(seq) = override_seq {
        let ban_exempt: Option<bool> = get!(row, "ban_exempt");
        let ban_exempt = ban_exempt.ok_or_else(|| {
            Error::database("a bucket's override is not there; it was removed from outside")
        })?;
        head.exception =
            Some(Exception { seq, limit: limit!(row), ban_exempt, until_us: us_if(row, "ends_at")? });
    }
    Ok(Loaded { head, end, holding: get!(row, "holding"), removed: false })
}

/// The parts of its charges that end by themselves.
fn holds(row: &PgRow) -> Result<Vec<Hold>> {
    type Times = Option<Vec<Moment>>;
    let (seqs, amounts): (Option<Vec<i64>>, Option<Vec<i64>>) =
        (get!(row, "hold_seqs"), get!(row, "hold_amounts"));
    let (charged, ends): (Times, Times) = (get!(row, "hold_charged"), get!(row, "hold_ends"));
    let members: Option<Vec<Option<String>>> = get!(row, "hold_members");
    let (Some(seqs), Some(amounts), Some(charged), Some(ends), Some(members)) =
        (seqs, amounts, charged, ends, members)
    else {
        return Ok(Vec::new());
    };
    let holds = seqs.into_iter().zip(amounts).zip(charged).zip(ends).zip(members);
    let hold = |((((seq, amount), Moment(charged)), Moment(ends)), member): ((((i64, i64), _), _), _)| {
        Ok(Hold {
            seq: counted!("seq", seq),
            charged_us: charged.timestamp_micros(),
            amount: counted!("amount", amount),
            ends_us: ends.timestamp_micros(),
            member,
        })
    };
    holds.map(hold).collect()
}

/// A bucket as the database's type has it.
struct BucketHead<'w>(&'w Moved<'w>);

/// A row of the ledger, in a call about the buckets from the first on.
struct LedgerRow<'w> {
    buckets: &'w [Moved<'w>],
    first: usize,
    written: &'w Written<'w>,
}

/// The part of a charge that ends.
struct Part<'w> {
    buckets: &'w [Moved<'w>],
    first: usize,
    bucket: usize,
    hold: &'w Hold,
}

macro_rules! composite {
    ($rust:ty, $name:literal) => {
        impl Type<sqlx::Postgres> for $rust {
            fn type_info() -> PgTypeInfo {
                PgTypeInfo::with_name($name)
            }
        }

        impl PgHasArrayType for $rust {
            fn array_type_info() -> PgTypeInfo {
                PgTypeInfo::array_of($name)
            }
        }
    };
}

composite!(BucketHead<'_>, "zone_engine_head");
composite!(LedgerRow<'_>, "zone_engine_row");
composite!(Part<'_>, "zone_engine_part");

fn place(bucket: usize) -> Result<i32, BoxDynError> {
    Ok(i32::try_from(bucket + 1)?)
}

impl Encode<'_, sqlx::Postgres> for BucketHead<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Moved { name, is_new, before, before_hash, head, holding, end, ended, shapes, .. } = self.0;
        let mut row = PgRecordEncoder::new(buffer);
        row.encode(name.0)?;
        row.encode(name.1)?;
        row.encode(*is_new)?;
        row.encode(before.seq)?;
        row.encode(&before_hash[..])?;
        row.encode((before.seq > 0).then(|| from_us(before.last_us)).transpose()?)?;
        row.encode(before.spent_total)?;
        row.encode(head.seq)?;
        row.encode(from_us(head.last_us)?)?;
        row.encode(head.spent_total)?;
        row.encode(head.level)?;
        row.encode(head.strikes)?;
        row.encode(head.banned_until_us.map(from_us).transpose()?)?;
        row.encode(head.ban_strikes)?;
        row.encode(head.carried.map(|carried| carried.amount))?;
        row.encode(head.carried.map(|carried| from_us(carried.at_us)).transpose()?)?;
        row.encode(head.carried.map(|carried| carried.total))?;
        row.encode(head.carried.map(|carried| carried.seq))?;
        row.encode(head.exception.map(|exception| exception.seq))?;
        row.encode(head.zone_version)?;
        row.encode(head.bans)?;
        row.encode(*holding)?;
        row.encode(*ended)?;
        row.encode(shapes.as_deref().and_then(text_of))?;
        row.encode(end.salt.as_ref().map(|salt| &salt[..]))?;
        row.encode(&end.hash[..])?;
        row.finish();
        Ok(IsNull::No)
    }
}

impl Encode<'_, sqlx::Postgres> for LedgerRow<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Written { bucket, row, named, before_us, hash } = self.written;
        let moved = &self.buckets[*bucket];
        let salt = moved.end.salt.as_ref().filter(|_| row.seq == 1);
        let mut to = PgRecordEncoder::new(buffer);
        to.encode(place(*bucket - self.first)?)?;
        to.encode(row.txn)?;
        to.encode(*named)?;
        to.encode(moved.name.0)?;
        to.encode(row.zone_version)?;
        to.encode(moved.name.1)?;
        to.encode(row.seq)?;
        to.encode(row.kind.as_str())?;
        to.encode(row.checks)?;
        to.encode(row.blocked)?;
        to.encode(row.reason.as_str())?;
        to.encode(row.critical)?;
        to.encode(row.band.map(i16::from))?;
        to.encode(row.cost)?;
        to.encode(row.spent)?;
        to.encode(row.spent_total)?;
        to.encode(row.remaining)?;
        to.encode(row.limit)?;
        to.encode(row.retry_after_us)?;
        to.encode(row.delay_us)?;
        to.encode(row.level)?;
        to.encode(row.strikes)?;
        to.encode(row.target_us.map(from_us).transpose()?)?;
        to.encode(from_us(row.decided_us)?)?;
        to.encode(before_us.map(from_us).transpose()?)?;
        to.encode(row.ends_us.map(from_us).transpose()?)?;
        to.encode(row.member)?;
        to.encode(salt.map(|salt| &salt[..]))?;
        to.encode(&hash[..])?;
        to.finish();
        Ok(IsNull::No)
    }
}

impl Encode<'_, sqlx::Postgres> for Part<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let (zone_id, key) = self.buckets[self.bucket].name;
        let Hold { seq, charged_us, amount, ends_us, member } = self.hold;
        let mut row = PgRecordEncoder::new(buffer);
        row.encode(place(self.bucket - self.first)?)?;
        row.encode(zone_id)?;
        row.encode(key)?;
        row.encode(*seq)?;
        row.encode(from_us(*charged_us)?)?;
        row.encode(*amount)?;
        row.encode(from_us(*ends_us)?)?;
        row.encode(member.as_deref())?;
        row.finish();
        Ok(IsNull::No)
    }
}
