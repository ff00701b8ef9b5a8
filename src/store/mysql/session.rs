//! The engine's hands on MySQL and MariaDB: two procedures, one that tells what there is and one that appends.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{MySqlConnection, Row};

use super::ledger::ledger_row;
use super::{called, error, killed, number_of_error, text_if, time, whole};
use crate::chain::End;
use crate::decide::{Carried, Exception, Head, Hold, Shape, Standing, Version};
use crate::engine::{
    self, Appended, Asked, Charged, Fate, Held, Loaded, Moved, Name, Policies, Question, Range, Wanted,
    Writing, Written, of_bucket,
};
use crate::entry::Kind;
use crate::error::{Error, Result};
use crate::shard::elsewhere;
use crate::store::fault::no_operator;
use crate::store::list::{List, Value};
use crate::store::shapes::{shapes_of, text_of};
use crate::store::{hash_of, row_of, rows_of, salt_of};
use crate::zone::{BanRule, Calendar, Limit, Policy, Queueing, Sharing};

/// A connection, and how a call goes about the buckets.
pub(super) struct Session<'c> {
    pub connection: &'c mut MySqlConnection,
    pub policies: &'c Policies,
    /// Hold them from the first look on, in a transaction that is open; else what is appended is one of its own.
    pub lock: bool,
    /// Do not wait for those that somebody else holds, and move those that can be moved; else all move or none.
    pub skip_locked: bool,
    /// The longest wait for a lock; None in a caller's transaction, whose own wait holds.
    pub lock_wait_s: Option<i32>,
}

#[async_trait]
impl engine::Session for Session<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        let names = wanted.names;
        let (call, query) = if let (&[(zone_id, key)], [] | [_]) = (names, wanted.txns) {
            let call = "call zone_engine_hold_one(?, ?, ?, ?, ?, ?)";
            (call, sqlx::query(call).bind(zone_id).bind(key).bind(wanted.txns.first().map(|(_, txn)| txn)))
        } else {
            let txns =
                wanted.txns.iter().map(|(n, txn)| [names[*n].0.into(), names[*n].1.into(), txn.into()]);
            let buckets = List::of(names.iter().map(|name| [name.0.into(), name.1.into()]));
            let call = "call zone_engine_hold(?, ?, ?, ?, ?)";
            (call, sqlx::query(call).bind(buckets.json()).bind(List::of(txns).json()))
        };
        let query = query.bind(wanted.window_us).bind(self.lock).bind(self.lock_wait_s);
        let rows = whole(self.connection, call, query).await?;
        let (heads, rest) = rows
            .split_at_checked(names.len())
            .ok_or_else(|| Error::database(format!("{} buckets got {} heads", names.len(), rows.len())))?;
        let mut held = Held { heads: Vec::with_capacity(names.len()), ..Held::default() };
        let mut in_force: Vec<Option<i32>> = Vec::with_capacity(names.len());
        for (row, name) in heads.iter().zip(names) {
            held.now_us = get!(row, "now_us");
            in_force.push(get!(row, "version"));
            held.heads.push(loaded(row, *name)?);
        }
        for row in rest {
            match row.columns().first().map(sqlx::Column::name) {
                Some("back_place") => {
                    *at(&mut held.heads, row, "back_place")? = row_of("zone_txn", row, back)?;
                }
                Some("total_place") => {
                    let place = place(row, "total_place")?;
                    let question = Question::TotalBefore(get!(row, "total_us"));
                    held.answers.push((place, question, get!(row, "total")));
                }
                Some("hidden_place") => held.hidden.push(ledger_row(row)?),
                Some("hold_place") => {
                    let hold = row_of("zone_hold", row, hold)?;
                    held.holds.entry(place(row, "hold_place")?).or_default().push(hold);
                }
                _ => held.past.push((place(row, "past_place")?, ledger_row(row)?)),
            }
        }
        for (zone_id, range) in Range::of_zones(names, &held.heads, &in_force) {
            let versions = self.versions(zone_id, &range).await?;
            held.versions.insert(zone_id, versions);
        }
        Ok(held)
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        let asked = questions.iter().map(|&Asked { name, question, .. }| {
            let (kind, number, between) = question.asked();
            let (after_us, until_us) = between.unzip();
            [name.0.into(), name.1.into(), kind.into(), number.into(), after_us.into(), until_us.into()]
        });
        let call = "call zone_engine_ask(?)";
        let query = sqlx::query(call).bind(List::of(asked).json());
        let rows = whole(self.connection, call, query).await?;
        rows.iter().map(|row| Ok(get!(row, "answer"))).collect()
    }

    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>> {
        let asked = windows.iter().map(|&((zone_id, key), us)| [zone_id.into(), key.into(), us.into()]);
        let call = "call zone_engine_charges(?, ?)";
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let query = sqlx::query(call).bind(List::of(asked).json()).bind(limit);
        let mut charges = vec![Vec::new(); windows.len()];
        for row in &whole(self.connection, call, query).await? {
            let charged: Charged = (get!(row, "at_us"), get!(row, "spent"), get!(row, "spent_total"));
            at(&mut charges, row, "place")?.push(charged);
        }
        Ok(charges)
    }

    async fn leases(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Standing>> {
        let call = "call zone_engine_leases(?, ?)";
        let rows = whole(self.connection, call, sqlx::query(call).bind(zone_id).bind(key)).await?;
        rows_of("zone_txn", &rows, |row| standing!(row))
    }

    async fn shapes(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Shape>> {
        let call = "call zone_engine_shapes(?, ?)";
        let rows = whole(self.connection, call, sqlx::query(call).bind(zone_id).bind(key)).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let shapes: Option<&str> = get!(row, "shapes");
        shapes_of(shapes)
    }

    async fn login(&mut self) -> Result<Option<String>> {
        let login = sqlx::query_scalar(include_str!("operator_login.sql"));
        let login: Option<String> = login.fetch_optional(&mut *self.connection).await.map_err(error)?;
        login.ok_or_else(no_operator).map(Some)
    }

    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        match writing.only_row() {
            Some((Kind::Check | Kind::Coalesced | Kind::Unchecked, moved, written)) => {
                let call = include_str!("engine_append_one.sql");
                let query = bind_append_one!(sqlx::query(call), moved, written, Ok::<_, Error>)
                    .bind(self.skip_locked)
                    .bind(self.lock_wait_s)
                    .bind(!self.lock);
                return self.append_row(call, query).await;
            }
            Some((Kind::Ban | Kind::Unban | Kind::Override | Kind::OverrideEnd, moved, written)) => {
                let call = include_str!("operator_append.sql");
                let query = bind_operator_append!(sqlx::query(call), moved, written, Ok::<_, Error>);
                return self.append_row(call, query).await;
            }
            _ => {}
        }
        let mut lists: Vec<(List, List)> = writing.buckets.iter().map(|_| Default::default()).collect();
        for (bucket, hold) in &writing.holds {
            let part = [hold.seq, hold.amount, hold.ends_us].map(Value::from);
            let is_older = hold.seq <= writing.buckets[*bucket].before.seq;
            let rest = [hold.member.as_deref().into(), is_older.then_some(hold.charged_us).into()];
            lists[*bucket].0.push_all(part.into_iter().chain(rest));
        }
        for written in &writing.rows {
            lists[written.bucket].1.push(ledger(written, &writing.buckets[written.bucket]));
        }
        let buckets = writing.buckets.iter().zip(lists);
        let heads = List::of(buckets.map(|(moved, (parts, rows))| bucket(moved, parts, rows)));
        let call = "call zone_engine_append(?, ?, ?, ?)";
        let query = sqlx::query(call)
            .bind(heads.json())
            .bind(self.skip_locked)
            .bind(self.lock_wait_s)
            .bind(!self.lock);
        let row = match told(call, called(self.connection, call, query).await)? {
            Ok(row) => row,
            Err(fate) => return Ok(Appended { now_us: None, fates: vec![fate; writing.buckets.len()] }),
        };
        let mut fates = vec![Fate::Appended; writing.buckets.len()];
        let stale: Option<String> = row.try_get("stale").map_err(error)?;
        let stale: Vec<usize> = stale.map_or(Ok(Vec::new()), |places| {
            serde_json::from_str(&places).map_err(|e| Error::database("no places").caused_by(e))
        })?;
        for place in stale {
            if let Some(fate) = place.checked_sub(1).and_then(|place| fates.get_mut(place)) {
                *fate = Fate::Stale;
            }
        }
        Ok(Appended { now_us: Some(get!(row, "now_us")), fates })
    }
}

impl Session<'_> {
    /// Appends one row, by a routine that tells the fate of its bucket.
    async fn append_row(
        &mut self,
        call: &str,
        query: Query<'_, sqlx::MySql, MySqlArguments>,
    ) -> Result<Appended> {
        let row = match told(call, called(self.connection, call, query).await)? {
            Ok(row) => row,
            Err(fate) => return Ok(Appended { now_us: None, fates: vec![fate] }),
        };
        let fate = Fate::told(get!(row, "fate"));
        Ok(Appended { now_us: Some(get!(row, "now_us")), fates: vec![fate] })
    }

    async fn versions(&mut self, zone_id: i32, range: &Range) -> Result<Arc<[Version]>> {
        if let Some(known) = self.policies.known_of(zone_id, range) {
            return Ok(known);
        }
        let call = "call zone_engine_versions(?, ?)";
        let rows = called(self.connection, call, sqlx::query(call).bind(zone_id).bind(range.from)).await?;
        let keep = self.lock_wait_s.is_some();
        self.policies.learn(zone_id, range, rows_of("zone_version", &rows, version), keep)
    }
}

/// The answer of an append; or what has become of all its buckets, where nothing was done.
fn told(call: &str, rows: Result<Vec<MySqlRow>>) -> Result<Result<MySqlRow, Fate>> {
    match rows.map_err(|error| (number_of_error(&error), error)) {
        Ok(rows) => {
            let row = rows.into_iter().next();
            row.map(Ok).ok_or_else(|| killed(call))
        }
        Err((31009, _)) => Ok(Err(Fate::Outdated)),
        // Two that made the same buckets may have waited for each other.
        Err((31010 | 1213, _)) => Ok(Err(Fate::Stale)),
        Err((_, error)) => Err(error),
    }
}

fn version(row: &MySqlRow) -> Result<Version> {
    Ok(Version {
        version: counted!(row, "version"),
        policy: policy!(row)?,
        changed_us: time(row, "changed_at")?.timestamp_micros(),
    })
}

fn loaded(row: &MySqlRow, name: Name<'_>) -> Result<Loaded> {
    let seq: Option<i64> = get!(row, "seq");
    if seq.is_none() {
        return Ok(Loaded::default());
    }
    let moved_to: Option<&str> = get!(row, "moved_to");
    moved_to.map_or(Ok(()), |to| Err(elsewhere(to)))?;
    whole_head(row).map_err(of_bucket("zone_bucket_lock", name))
}

fn whole_head(row: &MySqlRow) -> Result<Loaded> {
    let mut loaded = back(row)?;
    loaded.removed = false;
    let head = &mut loaded.head;
    head.banned_until_us = get!(row, "banned_us");
    head.bans = counted!(row, "bans");
    head.ban_strikes = counted!(row, "ban_strikes");
    let carried_us: Option<i64> = get!(row, "carried_us");
    if let Some(at_us) = carried_us {
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
            Some(Exception { seq, limit: limit!(row), ban_exempt, until_us: get!(row, "ends_us") });
    }
    loaded.holding = get!(row, "holding");
    Ok(loaded)
}

/// A head as the last row of the ledger has it.
fn back(row: &MySqlRow) -> Result<Loaded> {
    let (last_us, zone_version): (Option<i64>, Option<i32>) =
        (get!(row, "last_us"), counted!(row, "zone_version"));
    let head = Head {
        seq: counted!(row, "seq"),
        last_us: last_us.unwrap_or_default(),
        spent_total: counted!(row, "spent_total"),
        level: counted!(row, "level"),
        zone_version: zone_version.unwrap_or_default(),
        strikes: counted!(row, "strikes"),
        ..Head::default()
    };
    let salt: Option<&[u8]> = get!(row, "salt");
    let end = Some(End { salt: salt.map(salt_of).transpose()?, hash: hash_of(get!(row, "row_hash"))? });
    Ok(Loaded { head, end, removed: true, ..Loaded::default() })
}

fn hold(row: &MySqlRow) -> Result<Hold> {
    Ok(Hold {
        seq: counted!(row, "seq"),
        charged_us: get!(row, "charged_us"),
        amount: counted!(row, "amount"),
        ends_us: get!(row, "ends_us"),
        member: text_if(row, "member")?,
    })
}

fn place(row: &MySqlRow, column: &str) -> Result<usize> {
    let place: i64 = row.try_get(column).map_err(error)?;
    let place = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
    place.ok_or_else(|| Error::database("a place that was not asked for"))
}

fn at<'t, T>(all: &'t mut [T], row: &MySqlRow, column: &str) -> Result<&'t mut T> {
    all.get_mut(place(row, column)?).ok_or_else(|| Error::database("a place that was not asked for"))
}

/// A bucket as the procedure reads it.
fn bucket<'m>(moved: &'m Moved<'_>, parts: List, rows: List) -> [Value<'m>; 18] {
    let Moved { name, is_new, before, before_hash, head, end, by_row, ended, shapes, .. } = moved;
    let mut more = List::default();
    if !by_row || *ended || shapes.is_some() {
        let shapes = shapes.as_deref().and_then(text_of);
        more.push(besides(moved, shapes.as_deref()));
    }
    [
        name.0.into(),
        (*is_new).into(),
        before.seq.into(),
        (before.seq > 0).then_some(before.last_us).into(),
        before.spent_total.into(),
        head.seq.into(),
        head.last_us.into(),
        head.spent_total.into(),
        head.level.into(),
        head.strikes.into(),
        head.zone_version.into(),
        more.into(),
        parts.into(),
        name.1.into(),
        before_hash[..].into(),
        end.hash[..].into(),
        end.salt.as_ref().filter(|_| before.seq == 0).map(|salt| &salt[..]).into(),
        rows.into(),
    ]
}

/// The columns that are not in its last row.
fn besides<'m>(Moved { head, holding, ended, .. }: &Moved<'_>, shapes: Option<&'m str>) -> [Value<'m>; 11] {
    let carried = |of: fn(Carried) -> i64| head.carried.map(of).into();
    [
        head.banned_until_us.into(),
        head.ban_strikes.into(),
        carried(|carried| carried.amount),
        carried(|carried| carried.at_us),
        carried(|carried| carried.total),
        carried(|carried| carried.seq),
        head.exception.map(|exception| exception.seq).into(),
        head.bans.into(),
        (*holding).into(),
        (*ended).into(),
        shapes.into(),
    ]
}

/// A row of a bucket; the hash of its last one is the head's.
fn ledger<'w>(Written { row, named, hash, .. }: &'w Written<'_>, moved: &Moved<'_>) -> [Value<'w>; 22] {
    [
        (*named).into(),
        row.seq.into(),
        row.checks.into(),
        row.blocked.into(),
        row.critical.into(),
        row.cost.into(),
        row.spent.into(),
        row.spent_total.into(),
        row.remaining.into(),
        row.limit.into(),
        row.retry_after_us.into(),
        row.delay_us.into(),
        row.level.into(),
        row.strikes.into(),
        row.ends_us.into(),
        row.kind.as_str().into(),
        row.reason.as_str().into(),
        row.member.into(),
        (&row.txn).into(),
        (row.seq < moved.head.seq).then_some(&hash[..]).into(),
        row.band.map(i32::from).into(),
        row.target_us.into(),
    ]
}
