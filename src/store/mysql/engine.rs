//! The engine's hands on MySQL and MariaDB: two procedures, one that tells what there is and one that appends.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::ledger::ledger_row;
use super::{called, error, number_of_error, text_if, time};
use crate::chain::{End, Hash, hex};
use crate::decide::{Carried, Exception, Head, Hold, Version};
use crate::error::{Error, Result};
use crate::store::engine::{
    self, Appended, Asked, Charged, Fate, Held, Loaded, Moved, Name, Policies, Question, Range, Versions,
    Wanted, Writing, Written,
};
use crate::store::{hash_of, salt_of};
use crate::zone::{BanRule, Calendar, Limit, Policy};

/// A connection, and how a call goes about the buckets.
pub(super) struct Session<'c> {
    pub connection: &'c mut MySqlConnection,
    pub policies: &'c Policies,
    /// Hold them from the first look on, in a transaction that is open; else what is appended is one of its own.
    pub lock: bool,
    /// Do not wait for those that somebody else holds, and move those that can be moved; else all move or none.
    pub skip_locked: bool,
    pub lock_wait_s: i32,
}

impl engine::Session for Session<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        let names = wanted.names;
        let txns: Vec<_> =
            wanted.txns.iter().map(|&(n, txn)| (names[n].0, names[n].1, simple(txn))).collect();
        let call = "call zone_engine_hold(?, ?, ?, ?, ?)";
        let query = sqlx::query(call)
            .bind(json(names)?)
            .bind(json(&txns)?)
            .bind(wanted.window_us)
            .bind(self.lock)
            .bind(self.lock_wait_s);
        let rows = called(self.connection, call, query).await?;
        let (heads, rest) = rows
            .split_at_checked(names.len())
            .ok_or_else(|| Error::database(format!("{} buckets got {} heads", names.len(), rows.len())))?;
        let mut held = Held { heads: Vec::with_capacity(names.len()), ..Held::default() };
        let mut zones: BTreeMap<i32, Range> = BTreeMap::new();
        let mut in_force = Vec::with_capacity(names.len());
        for (n, row) in heads.iter().enumerate() {
            held.now_us = get!(row, "now_us");
            in_force.push(get!(row, "version"));
            let loaded = loaded(row)?;
            if loaded.holding {
                held.holds.insert(n, Vec::new());
            }
            held.heads.push(loaded);
        }
        for row in rest {
            match row.columns().first().map(sqlx::Column::name) {
                Some("back_place") => *at(&mut held.heads, row, "back_place")? = back(row)?,
                Some("total_place") => {
                    let place = place(row, "total_place")?;
                    let question = Question::TotalBefore(get!(row, "total_us"));
                    held.answers.push((place, question, get!(row, "total")));
                }
                Some("hold_place") => {
                    held.holds.entry(place(row, "hold_place")?).or_default().push(hold(row)?);
                }
                _ => held.past.push((place(row, "past_place")?, ledger_row(row)?)),
            }
        }
        for ((zone_id, _), (loaded, to)) in names.iter().zip(held.heads.iter().zip(in_force)) {
            let to: Option<i32> = to;
            if let Some(to) = to {
                let from = if loaded.head.seq > 0 { loaded.head.zone_version } else { to };
                Range::widen(&mut zones, *zone_id, from, to);
            }
        }
        held.versions = self.versions(zones).await?;
        Ok(held)
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        let asked = questions.iter().map(|&Asked { name, question, .. }| {
            let (kind, number) = match question {
                Question::TotalBefore(us) => ("total", us),
                Question::Reached(search) => ("reached", search.total),
                Question::StrikesBefore(us) => ("strikes", us),
                Question::BlockedSince(us) => ("blocked", us),
                Question::WasOpen => ("open", 0),
            };
            (name.0, name.1, kind, number)
        });
        let call = "call zone_engine_ask(?)";
        let query = sqlx::query(call).bind(json(&asked.collect::<Vec<_>>())?);
        let rows = called(self.connection, call, query).await?;
        rows.iter().map(|row| Ok(get!(row, "answer"))).collect()
    }

    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>> {
        let asked: Vec<_> = windows.iter().map(|&((zone_id, key), us)| (zone_id, key, us)).collect();
        let call = "call zone_engine_charges(?, ?)";
        let query = sqlx::query(call).bind(json(&asked)?).bind(i32::try_from(limit).unwrap_or(i32::MAX));
        let mut charges = vec![Vec::new(); windows.len()];
        for row in &called(self.connection, call, query).await? {
            let charged: Charged = (get!(row, "at_us"), get!(row, "spent"), get!(row, "spent_total"));
            at(&mut charges, row, "place")?.push(charged);
        }
        Ok(charges)
    }

    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        let mut heads: Vec<_> = writing.buckets.iter().map(BucketHead::new).collect();
        for written in &writing.rows {
            heads[written.bucket].rows.push(LedgerRow(written));
        }
        for (bucket, hold) in &writing.holds {
            heads[*bucket].parts.push((hold.seq, hold.amount, hold.ends_us, hold.member.as_deref()));
        }
        let call = "call zone_engine_append(?, ?, ?, ?)";
        let query = sqlx::query(call)
            .bind(json(&heads)?)
            .bind(self.skip_locked)
            .bind(self.lock_wait_s)
            .bind(!self.lock);
        let refused = |fate| Ok(Appended { now_us: None, fates: vec![fate; writing.buckets.len()] });
        let rows = match called(self.connection, call, query).await {
            Err(error) => match number_of_error(&error) {
                31009 => return refused(Fate::Outdated),
                // Two that made the same buckets may have waited for each other.
                31010 | 1213 => return refused(Fate::Stale),
                _ => return Err(error),
            },
            rows => rows?,
        };
        let row = rows.first().ok_or_else(|| Error::database("what was appended got no answer"))?;
        let mut fates = vec![Fate::Appended; writing.buckets.len()];
        for (column, fate) in [("stale", Fate::Stale), ("locked", Fate::Locked)] {
            let places: Option<String> = row.try_get(column).map_err(error)?;
            let places: Vec<usize> = places.map_or(Ok(Vec::new()), |places| {
                serde_json::from_str(&places).map_err(|e| Error::database("no places").caused_by(e))
            })?;
            for place in places {
                if let Some(of) = place.checked_sub(1).and_then(|place| fates.get_mut(place)) {
                    *of = fate;
                }
            }
        }
        Ok(Appended { now_us: Some(get!(row, "now_us")), fates })
    }
}

impl Session<'_> {
    async fn versions(&mut self, zones: BTreeMap<i32, Range>) -> Result<Versions> {
        let mut versions = Versions::new();
        for (zone_id, range) in zones {
            let known = match self.policies.known_of(zone_id, &range) {
                Some(known) => known,
                None => self.read_versions(zone_id, &range).await?,
            };
            versions.insert(zone_id, known);
        }
        Ok(versions)
    }

    async fn read_versions(&mut self, zone_id: i32, range: &Range) -> Result<Arc<[Version]>> {
        let call = "call zone_engine_versions(?, ?)";
        let rows = called(self.connection, call, sqlx::query(call).bind(zone_id).bind(range.from)).await?;
        self.policies.learn(zone_id, range, rows.iter().map(version).collect())
    }
}

fn version(row: &MySqlRow) -> Result<Version> {
    Ok(Version {
        version: get!(row, "version"),
        policy: policy!(row),
        changed_us: time(row, "changed_at")?.timestamp_micros(),
    })
}

fn loaded(row: &MySqlRow) -> Result<Loaded> {
    let seq: Option<i64> = get!(row, "seq");
    if seq.is_none() {
        return Ok(Loaded::default());
    }
    let mut loaded = back(row)?;
    loaded.removed = false;
    let head = &mut loaded.head;
    head.banned_until_us = get!(row, "banned_us");
    head.bans = get!(row, "bans");
    head.ban_strikes = get!(row, "ban_strikes");
    let carried_us: Option<i64> = get!(row, "carried_us");
    if let Some(at_us) = carried_us {
        let (amount, total, seq) =
            (get!(row, "carried"), get!(row, "carried_total"), get!(row, "carried_seq"));
        head.carried = Some(Carried { at_us, amount, total, seq });
    }
    let override_seq: Option<i64> = get!(row, "override_seq");
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
        (get!(row, "last_us"), get!(row, "zone_version"));
    let head = Head {
        seq: get!(row, "seq"),
        last_us: last_us.unwrap_or_default(),
        spent_total: get!(row, "spent_total"),
        level: get!(row, "level"),
        zone_version: zone_version.unwrap_or_default(),
        strikes: get!(row, "strikes"),
        ..Head::default()
    };
    let salt: Option<&[u8]> = get!(row, "salt");
    let end = Some(End { salt: salt.map(salt_of).transpose()?, hash: hash_of(get!(row, "row_hash"))? });
    Ok(Loaded { head, end, removed: true, ..Loaded::default() })
}

fn hold(row: &MySqlRow) -> Result<Hold> {
    Ok(Hold {
        seq: get!(row, "seq"),
        charged_us: get!(row, "charged_us"),
        amount: get!(row, "amount"),
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

fn json(value: &(impl Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::database("no JSON").caused_by(e))
}

fn simple(txn: Uuid) -> String {
    txn.simple().to_string()
}

/// A bucket as the procedure reads it.
struct BucketHead<'w> {
    moved: &'w Moved<'w>,
    rows: Vec<LedgerRow<'w>>,
    parts: Vec<(i64, i64, i64, Option<&'w str>)>,
}

/// A row of the ledger.
struct LedgerRow<'w>(&'w Written<'w>);

impl<'w> BucketHead<'w> {
    fn new(moved: &'w Moved<'w>) -> Self {
        Self { moved, rows: Vec::new(), parts: Vec::new() }
    }
}

impl Serialize for BucketHead<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Moved { name, is_new, before, before_hash, head, holding, end, ended, .. } = self.moved;
        let carried = |of: fn(Carried) -> i64| head.carried.map(of);
        let mut to = serializer.serialize_seq(None)?;
        to.serialize_element(&name.0)?;
        to.serialize_element(name.1)?;
        to.serialize_element(&u8::from(*is_new))?;
        to.serialize_element(&before.seq)?;
        to.serialize_element(&hex(before_hash))?;
        to.serialize_element(&(before.seq > 0).then_some(before.last_us))?;
        to.serialize_element(&before.spent_total)?;
        to.serialize_element(&head.seq)?;
        to.serialize_element(&head.last_us)?;
        to.serialize_element(&head.spent_total)?;
        to.serialize_element(&head.level)?;
        to.serialize_element(&head.strikes)?;
        to.serialize_element(&head.banned_until_us)?;
        to.serialize_element(&head.ban_strikes)?;
        to.serialize_element(&carried(|carried| carried.amount))?;
        to.serialize_element(&carried(|carried| carried.at_us))?;
        to.serialize_element(&carried(|carried| carried.total))?;
        to.serialize_element(&carried(|carried| carried.seq))?;
        to.serialize_element(&head.exception.map(|exception| exception.seq))?;
        to.serialize_element(&head.zone_version)?;
        to.serialize_element(&head.bans)?;
        to.serialize_element(&u8::from(*holding))?;
        to.serialize_element(&u8::from(*ended))?;
        to.serialize_element(&end.salt.as_ref().map(|salt| hex(salt)))?;
        to.serialize_element(&hex(&end.hash))?;
        to.serialize_element(&self.rows)?;
        to.serialize_element(&self.parts)?;
        to.end()
    }
}

impl Serialize for LedgerRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Written { row, named, hash, .. } = self.0;
        let mut to = serializer.serialize_seq(None)?;
        to.serialize_element(&simple(row.txn))?;
        to.serialize_element(&u8::from(*named))?;
        to.serialize_element(&row.seq)?;
        to.serialize_element(row.kind)?;
        to.serialize_element(&row.checks)?;
        to.serialize_element(&u8::from(row.blocked))?;
        to.serialize_element(row.reason)?;
        to.serialize_element(&u8::from(row.critical))?;
        to.serialize_element(&row.cost)?;
        to.serialize_element(&row.spent)?;
        to.serialize_element(&row.spent_total)?;
        to.serialize_element(&row.remaining)?;
        to.serialize_element(&row.limit)?;
        to.serialize_element(&row.retry_after_us)?;
        to.serialize_element(&row.delay_us)?;
        to.serialize_element(&row.level)?;
        to.serialize_element(&row.strikes)?;
        to.serialize_element(&row.ends_us)?;
        to.serialize_element(&row.member)?;
        to.serialize_element(&hex(hash as &Hash))?;
        to.end()
    }
}
