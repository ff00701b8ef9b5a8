//! The engine's hands on SQLite: what it asks for, and what it appends, by lists in one argument each.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::ledger::ledger_row;
use super::statement::{numbers, place, read, rows, text, unreadable};
use super::{Clock, error, text_if};
use crate::chain::{End, Row as Chained};
use crate::decide::{Carried, Exception, Head, Hold, Shape, Standing, Version};
use crate::engine::{
    self, Appended, Asked, Charged, Fate, Held, Loaded, Moved, Name, Question, Versions, Wanted, Writing,
    of_bucket,
};
use crate::entry::Kind;
use crate::error::{Error, Result};
use crate::shard::{self, belongs, elsewhere};
use crate::store::list::{List, Value};
use crate::store::moving::{held, limited};
use crate::store::shapes::{shapes_of, text_of};
use crate::store::{row_of, rows_of};
use crate::zone::{BanRule, Calendar, Limit, Policy, Queueing, Sharing};

/// A connection that holds the write lock, or only looks.
pub(super) struct Session<'c> {
    pub connection: &'c mut SqliteConnection,
    pub clock: &'c Clock,
}

#[async_trait]
impl engine::Session for Session<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        let Wanted { names, txns, window_us, .. } = *wanted;
        let heads = load_heads(self.connection, names).await?;
        let versions = load_versions(self.connection, names, &heads).await?;
        let holds = load_holds(self.connection, names, &heads, &versions, window_us).await?;
        let now_us = self.clock.now_us();
        // Of a new bucket there is nothing.
        let txns: Vec<_> =
            txns.iter().enumerate().filter(|(_, (name, _))| heads[*name].head.seq > 0).collect();
        let list = List::of(txns.iter().map(|(_, (name, txn))| {
            let (zone_id, key) = names[*name];
            [zone_id.into(), key.into(), txn.into()]
        }));
        let mut past = Vec::new();
        for row in rows(self.connection, include_str!("past.sql"), list).await? {
            past.push((txns[place(&row)?].0, ledger_row(&row)?));
        }
        past.sort_unstable_by_key(|(txn, row)| (*txn, row.seq));
        Ok(Held { now_us, heads, versions, holds, past, ..Held::default() })
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        let mut answers = vec![None; questions.len()];
        let (mut totals, mut reached, mut strikes) = <(Vec<_>, Vec<_>, Vec<_>)>::default();
        for (n, asked) in questions.iter().enumerate() {
            let (zone_id, key) = asked.name;
            let name = [zone_id.into(), key.into()];
            let [zone, bucket]: [Value<'_>; 2] = name;
            match asked.question {
                Question::TotalBefore(us) => {
                    totals.push((n, [zone, bucket, us.into(), Value::None, Value::None]))
                }
                Question::StrikesBefore(us) => {
                    strikes.push((n, [zone, bucket, us.into(), Value::None, Value::None]))
                }
                Question::Reached(search) => {
                    let engine::Search { total, after_us, until_us } = search;
                    let width_us = until_us.saturating_sub(after_us);
                    let highest_bit: i64 = width_us.checked_ilog2().map_or(0, |bit| 1 << bit);
                    reached.push((n, [zone, bucket, total.into(), after_us.into(), highest_bit.into()]));
                }
                Question::BlockedSince(us) => {
                    let blocked =
                        sqlx::query_scalar(include_str!("flood.sql")).bind(zone_id).bind(key).bind(us);
                    answers[n] = Some(blocked.fetch_one(&mut *self.connection).await.map_err(error)?);
                }
                Question::WasOpen => {
                    let was_open = sqlx::query_scalar(include_str!("was_open.sql")).bind(zone_id);
                    answers[n] = Some(was_open.fetch_one(&mut *self.connection).await.map_err(error)?);
                }
            }
        }
        for (sql, asked) in [
            (include_str!("windows.sql"), totals),
            (include_str!("waits.sql"), reached),
            (include_str!("strikes.sql"), strikes),
        ] {
            let (places, list): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
            for (n, [], answer) in numbers(self.connection, sql, List::of(list)).await? {
                answers[places[n]] = answer;
            }
        }
        Ok(answers)
    }

    /// It remembers nothing: a question costs no round trip.
    async fn charges(&mut self, windows: &[(Name<'_>, i64)], _: usize) -> Result<Vec<Vec<Charged>>> {
        Ok(vec![Vec::new(); windows.len()])
    }

    async fn leases(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Standing>> {
        let rows = sqlx::query(include_str!("leases.sql")).bind(zone_id).bind(key);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows_of("zone_txn", &rows, |row| standing!(row))
    }

    async fn shapes(&mut self, (zone_id, key): Name<'_>) -> Result<Vec<Shape>> {
        let shapes = "select b.shapes from zone_bucket_lock b where b.zone_id = ?1 and b.bucket_key = ?2";
        let shapes = sqlx::query_scalar(shapes).bind(zone_id).bind(key);
        let shapes: Option<Option<String>> =
            shapes.fetch_optional(&mut *self.connection).await.map_err(error)?;
        shapes_of(shapes.flatten().as_deref())
    }

    async fn login(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// The holder of the write lock has every bucket.
    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        let (ledger, more) = ledger(writing);
        let append = if more { include_str!("append_more.sql") } else { include_str!("append.sql") };
        let buckets = || writing.buckets.iter();
        for (sql, list) in [
            (
                include_str!("heads_add.sql"),
                List::of(buckets().filter(|moved| moved.removed).map(head_as_left)),
            ),
            (append, ledger),
            (
                include_str!("heads_set.sql"),
                List::of(buckets().filter(|moved| !moved.by_row).map(head_besides)),
            ),
            (include_str!("leases_end.sql"), leases(writing)),
            (include_str!("holds_end.sql"), List::of(buckets().filter(|moved| moved.ended).map(ended))),
            (include_str!("holds_add.sql"), holds(writing)),
            (include_str!("override_add.sql"), overrides(writing)),
            (include_str!("shapes_set.sql"), shapes(writing)),
        ] {
            rows(self.connection, sql, list).await?;
        }
        Ok(Appended { now_us: None, fates: vec![Fate::Appended; writing.buckets.len()] })
    }
}

async fn load_heads(connection: &mut SqliteConnection, names: &[Name<'_>]) -> Result<Vec<Loaded>> {
    let list = List::of(names.iter().map(|&(zone_id, key)| [zone_id.into(), key.into()]));
    let mut heads = vec![Loaded::default(); names.len()];
    let mut more = Vec::new();
    let said = rows(connection, include_str!("heads.sql"), list).await?;
    let Some(said) = said.first() else { return Ok(heads) };
    let (numbers, removed): (Option<String>, bool) = (get!(said, "numbers"), get!(said, "removed"));
    for row in numbers.unwrap_or_default().split_terminator(',') {
        let (n, loaded, has_more) = loaded(row, "zone_bucket_lock", names)?;
        heads[n] = loaded;
        if has_more {
            more.push(n);
        }
    }
    let without: Vec<_> = (0..names.len()).filter(|&n| heads[n].end.is_none()).collect();
    if removed && !without.is_empty() {
        let absent: Vec<_> = without.iter().map(|&n| names[n]).collect();
        let list = List::of(absent.iter().map(|&(zone_id, key)| [zone_id.into(), key.into()]));
        for row in text(connection, include_str!("heads_back.sql"), list).await?.split_terminator(',') {
            let (n, loaded, _) = loaded(row, "zone_txn", &absent)?;
            heads[without[n]] = Loaded { removed: true, ..loaded };
        }
    }
    let (shard, among): (Option<&str>, Option<&str>) = (get!(said, "shard"), get!(said, "among"));
    if let (Some(own), Some(among)) = (shard, among) {
        for n in without.into_iter().filter(|&n| heads[n].end.is_none()) {
            let home = shard::home(among, names[n].1);
            (home == own).then_some(()).ok_or_else(|| belongs(home))?;
        }
    }
    let list = List::of(more.iter().map(|&n| [names[n].0.into(), names[n].1.into()]));
    for row in rows(connection, include_str!("heads_more.sql"), list).await? {
        let moved_to: Option<&str> = get!(row, "moved_to");
        moved_to.map_or(Ok(()), |to| Err(elsewhere(to)))?;
        let n = more[place(&row)?];
        say_more(&mut heads[n], &row).map_err(of_bucket("zone_bucket_lock", names[n]))?;
    }
    Ok(heads)
}

/// Adds what a row of heads_more.sql says.
fn say_more(Loaded { head, holding, .. }: &mut Loaded, row: &SqliteRow) -> Result<()> {
    *holding = get!(row, "holding");
    head.banned_until_us = get!(row, "banned_until");
    head.bans = counted!(row, "bans");
    head.ban_strikes = counted!(row, "ban_strikes");
    let carried_us: Option<i64> = get!(row, "carried_at");
    if let Some(at_us) = carried_us {
        let amount = counted!(row, "carried");
        let (total, seq) = (counted!(row, "carried_total"), counted!(row, "carried_seq"));
        head.carried = Some(Carried { at_us, amount, total, seq });
    }
    let override_seq: Option<i64> = counted!(row, "override_seq");
    if let Some(seq) = override_seq {
        let (ban_exempt, until_us) = (get!(row, "ban_exempt"), get!(row, "ends_at"));
        head.exception = Some(Exception { seq, limit: limit!(row), ban_exempt, until_us });
    }
    Ok(())
}

/// A row of heads.sql: which one, the head, and whether it says more than most.
fn loaded(row: &str, table: &str, names: &[Name<'_>]) -> Result<(usize, Loaded, bool)> {
    let (numbers, chain) = row.split_once(';').ok_or_else(|| unreadable(&row))?;
    let (n, [seq, last_us, spent_total, version, strikes, has_more], level) = read(numbers)?;
    let loaded = || {
        let end = End::from_hex(chain)
            .ok_or_else(|| Error::database("\"row_hash\", \"salt\": they are not of 32 and of 16 bytes"))?;
        let version = counted!("zone_version", version);
        let head = Head {
            seq: counted!("seq", seq),
            last_us,
            spent_total: counted!("spent_total", spent_total),
            level: counted!("level", level),
            zone_version: i32::try_from(version).unwrap_or_default(),
            strikes: counted!("strikes", strikes),
            ..Head::default()
        };
        Ok(Loaded { head, end: Some(end), ..Loaded::default() })
    };
    Ok((n, loaded().map_err(of_bucket(table, names[n]))?, has_more != 0))
}

/// The versions of each zone, from the oldest that decided the last row of one of the buckets.
async fn load_versions(
    connection: &mut SqliteConnection,
    names: &[Name<'_>],
    heads: &[Loaded],
) -> Result<Versions> {
    let mut from: BTreeMap<i32, Option<i64>> = BTreeMap::new();
    for (&(zone_id, _), Loaded { head, .. }) in names.iter().zip(heads) {
        let version = (head.seq > 0).then_some(i64::from(head.zone_version));
        let oldest = from.entry(zone_id).or_default();
        *oldest = [*oldest, version].into_iter().flatten().min();
    }
    let list = List::of(from.into_iter().map(|(zone_id, version)| [zone_id.into(), version.into()]));
    let mut zones: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows(connection, include_str!("versions.sql"), list).await? {
        let version = row_of("zone_version", &row, |row| {
            let (version, changed_us) = (counted!(row, "version"), get!(row, "changed_at"));
            Ok(Version { version, policy: policy!(row)?, changed_us })
        });
        zones.entry(get!(row, "zone_id")).or_default().push(version?);
    }
    Ok(zones.into_iter().map(|(zone_id, versions)| (zone_id, versions.into())).collect())
}

/// The holds of those buckets that have any: what ends after the last row, and what was charged in a window that can be
/// asked about: by a version, by the override in force, or by one that comes now.
async fn load_holds(
    connection: &mut SqliteConnection,
    names: &[Name<'_>],
    heads: &[Loaded],
    versions: &Versions,
    window_us: i64,
) -> Result<HashMap<usize, Vec<Hold>>> {
    let holding = heads.iter().enumerate().filter(|(_, head)| head.holding);
    let holding: Vec<_> = holding.map(|(n, Loaded { head, .. })| (n, names[n], head)).collect();
    let list = List::of(holding.iter().map(|(_, (zone_id, key), head)| {
        let own = head.exception.and_then(|exception| exception.limit).map(|limit| limit.window_us);
        let windows = versions.get(zone_id).map_or(&[][..], |versions| versions).iter();
        let longest_us =
            windows.map(|version| version.policy.window_us()).chain(own).fold(window_us, i64::max);
        // The earliest that is asked about is the window that was open at the last row, and, of a sliding counter, the
        // slot before that, which is no longer.
        let charged_us = head.last_us.saturating_sub(longest_us.saturating_mul(2));
        [(*zone_id).into(), (*key).into(), head.last_us.into(), charged_us.into()]
    }));
    let mut holds: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows(connection, include_str!("holds.sql"), list).await? {
        let hold = row_of("zone_hold", &row, |row| {
            Ok(Hold {
                seq: counted!(row, "seq"),
                charged_us: get!(row, "charged_at"),
                amount: counted!(row, "amount"),
                ends_us: get!(row, "ends_at"),
                member: get!(row, "member"),
            })
        });
        holds.entry(holding[place(&row)?].0).or_default().push(hold?);
    }
    Ok(holds)
}

/// The rows, and whether one of them says more than most do.
fn ledger(writing: &Writing<'_>) -> (List, bool) {
    let (mut list, mut any_more) = (List::default(), false);
    for written in &writing.rows {
        let moved = &writing.buckets[written.bucket];
        let ((zone_id, key), row) = (moved.name, &written.row);
        let salt = moved.end.salt.filter(|_| row.seq == 1);
        let most = [
            (&row.txn).into(),
            zone_id.into(),
            row.zone_version.into(),
            key.into(),
            row.seq.into(),
            row.kind.as_str().into(),
            row.checks.into(),
            row.blocked.into(),
            row.reason.as_str().into(),
            row.cost.into(),
            row.spent.into(),
            row.spent_total.into(),
            row.remaining.into(),
            row.limit.into(),
            row.retry_after_us.into(),
            row.level.into(),
            row.decided_us.into(),
            written.before_us.into(),
            Value::Bytes(&written.hash),
            salt.as_ref().map(|salt| Value::Bytes(salt)).into(),
        ];
        // Each further column comes dear, even where it says nothing.
        if !says_more(row) {
            list.push(most);
            continue;
        }
        any_more = true;
        let more = [row.strikes.into(), row.critical.into()];
        let times = [row.delay_us, row.target_us, row.ends_us].map(Value::from);
        let texts = [row.member, row.note, row.actor].map(Value::from);
        let band = row.band.map(i32::from).into();
        list.push_all(most.into_iter().chain(more).chain(times).chain(texts).chain([band]));
    }
    (list, any_more)
}

fn says_more(row: &Chained<'_>) -> bool {
    row.strikes != 0
        || row.critical
        || row.band.is_some()
        || [row.delay_us, row.target_us, row.ends_us].iter().any(Option::is_some)
        || [row.member, row.note, row.actor].iter().any(Option::is_some)
}

fn head_as_left<'m>(moved: &'m Moved<'_>) -> [Value<'m>; 10] {
    let ((zone_id, key), head) = (moved.name, &moved.before);
    [
        zone_id.into(),
        key.into(),
        head.seq.into(),
        head.last_us.into(),
        head.spent_total.into(),
        head.level.into(),
        head.zone_version.into(),
        head.strikes.into(),
        moved.end.salt.as_ref().map(|salt| Value::Bytes(salt)).into(),
        Value::Bytes(&moved.before_hash),
    ]
}

/// The columns that are not in its last row.
fn head_besides<'m>(moved: &'m Moved<'_>) -> [Value<'m>; 11] {
    let ((zone_id, key), head) = (moved.name, &moved.head);
    [
        zone_id.into(),
        key.into(),
        head.banned_until_us.into(),
        head.bans.into(),
        head.ban_strikes.into(),
        head.carried.map(|carried| carried.amount).into(),
        head.carried.map(|carried| carried.at_us).into(),
        head.carried.map(|carried| carried.total).into(),
        head.carried.map(|carried| carried.seq).into(),
        head.exception.map(|exception| exception.seq).into(),
        moved.holding.into(),
    ]
}

fn ended<'m>(moved: &'m Moved<'_>) -> [Value<'m>; 3] {
    [moved.name.0.into(), moved.name.1.into(), moved.head.last_us.into()]
}

fn holds(writing: &Writing<'_>) -> List {
    List::of(writing.holds.iter().map(|(bucket, hold)| {
        let (zone_id, key) = writing.buckets[*bucket].name;
        held(zone_id, key, hold)
    }))
}

fn leases(writing: &Writing<'_>) -> List {
    List::of(writing.rows.iter().filter(|written| written.row.kind == Kind::Lease).map(|written| {
        let (zone_id, key) = writing.buckets[written.bucket].name;
        [zone_id.into(), key.into(), written.row.member.into(), written.row.seq.into()]
    }))
}

fn shapes(writing: &Writing<'_>) -> List {
    writing.buckets.iter().fold(List::default(), |mut list, Moved { name, shapes, .. }| {
        if let Some(shapes) = shapes {
            list.push([name.0.into(), name.1.into(), text_of(shapes).as_deref().into()]);
        }
        list
    })
}

fn overrides(writing: &Writing<'_>) -> List {
    List::of(writing.overrides.iter().map(|(bucket, own)| {
        let (zone_id, key) = writing.buckets[*bucket].name;
        limited(zone_id, key, own)
    }))
}
