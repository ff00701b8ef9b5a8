//! Checks by the batch: load, decide, append, in as many statements for many checks as for one.

use std::collections::{BTreeMap, HashMap};

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::bucket::{Bucket, Turn};
use super::list::List;
use super::{Clock, decision, error, from_us};
use crate::decide::{Head, Version};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::Request;
use crate::zone::{Durability, Policy};

/// How a check of the batch is answered.
enum Answer<'b> {
    New(Turn<'b>),
    /// Its transaction was decided before the batch.
    Past(Decision),
    /// Its transaction was decided by an earlier check of the batch.
    Again(usize),
}

pub(super) struct Done {
    pub decisions: Vec<Decision>,
    /// Of each zone, by the version that decided.
    pub durabilities: Vec<(i32, Durability)>,
}

/// Decides the requests in order, at one reading of the clock. The caller holds the write lock. With `checks`
/// nothing is decided: each row stands for so many checks that were blocked without asking.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    requests: &[Request],
    checks: Option<i32>,
    clock: &Clock,
) -> Result<Done> {
    let (names, places) = names(requests);
    let heads = load_heads(connection, &names).await?;
    let zones = load_versions(connection, &names, &heads).await?;
    let mut past = load_past(connection, requests, |n| heads[places[n]].seq > 0).await?;
    let now_us = clock.now_us();
    let made = names.iter().zip(heads);
    let mut buckets: Vec<_> = made.map(|(name, head)| Bucket::new(*name, head, &zones, now_us)).collect();
    load_bases(connection, &mut buckets).await?;

    let mut answers = Vec::with_capacity(requests.len());
    let mut decided: HashMap<(usize, Uuid), usize> = HashMap::new();
    for (n, (request, &place)) in requests.iter().zip(&places).enumerate() {
        let named = request.leaves_row() && !request.fresh;
        answers.push(if let Some(past) = past.remove(&n) {
            Answer::Past(past?)
        } else if let Some(&first) = decided.get(&(place, request.txn)).filter(|_| named) {
            same_cost(request, requests[first].cost)?;
            Answer::Again(first)
        } else {
            if named {
                decided.insert((place, request.txn), n);
            }
            Answer::New(match checks {
                None => buckets[place].decide(request.cost, request.leaves_row())?,
                Some(_) => buckets[place].stay_blocked()?,
            })
        });
    }
    load_waits(connection, &buckets, &places, &mut answers).await?;
    append(connection, requests, checks, &answers).await?;

    let mut decisions: Vec<Decision> = Vec::with_capacity(requests.len());
    for (request, answer) in requests.iter().zip(answers) {
        decisions.push(match answer {
            Answer::New(turn) => told(request, &turn)?,
            Answer::Past(decision) => decision,
            Answer::Again(first) => Decision { replayed: true, ..decisions[first].clone() },
        });
    }
    let current =
        |(&zone_id, versions): (_, &Vec<Version>)| Some((zone_id, versions.last()?.policy.durability()));
    let durabilities = zones.iter().filter_map(current).collect();
    Ok(Done { decisions, durabilities })
}

type Name<'r> = (i32, &'r str);

/// The buckets of the requests, each once, and which of them each request is about.
fn names(requests: &[Request]) -> (Vec<Name<'_>>, Vec<usize>) {
    let mut names = Vec::new();
    let mut known = HashMap::with_capacity(requests.len());
    let places = requests.iter().map(|request| {
        let name = (request.zone_id, request.key.as_str());
        *known.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    });
    let places = places.collect();
    (names, places)
}

async fn load_heads(connection: &mut SqliteConnection, names: &[Name<'_>]) -> Result<Vec<Head>> {
    let list = List::of(names.iter().map(|&(zone_id, key)| [zone_id.into(), key.into()]));
    let mut heads = vec![Head::default(); names.len()];
    for (n, [seq, last_us, spent_total, version], level) in
        numbers(connection, include_str!("heads.sql"), list).await?
    {
        let zone_version = i32::try_from(version).map_err(|_| unreadable(&version))?;
        heads[n] = Head { seq, last_us, spent_total, level, zone_version };
    }
    Ok(heads)
}

/// The versions of each zone, from the oldest that decided the last row of one of the buckets.
async fn load_versions(
    connection: &mut SqliteConnection,
    names: &[Name<'_>],
    heads: &[Head],
) -> Result<BTreeMap<i32, Vec<Version>>> {
    let mut from: BTreeMap<i32, Option<i64>> = BTreeMap::new();
    for (&(zone_id, _), head) in names.iter().zip(heads) {
        let version = (head.seq > 0).then_some(i64::from(head.zone_version));
        let oldest = from.entry(zone_id).or_default();
        *oldest = [*oldest, version].into_iter().flatten().min();
    }
    let list = List::of(from.into_iter().map(|(zone_id, version)| [zone_id.into(), version.into()]));
    let mut zones: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows(connection, include_str!("versions.sql"), list).await? {
        zones.entry(get!(row, "zone_id")).or_default().push(Version {
            version: get!(row, "version"),
            policy: policy!(row),
            changed_us: get!(row, "changed_at"),
        });
    }
    Ok(zones)
}

/// What was decided before for those requests whose transaction may have been; by the request's place.
async fn load_past(
    connection: &mut SqliteConnection,
    requests: &[Request],
    has_rows: impl Fn(usize) -> bool,
) -> Result<HashMap<usize, Result<Decision>>> {
    let asked = requests.iter().enumerate();
    let asked = asked.filter(|(n, request)| request.leaves_row() && !request.fresh && has_rows(*n));
    let asked: Vec<_> = asked.collect();
    let list = List::of(asked.iter().map(|(_, r)| [r.zone_id.into(), r.key.as_str().into(), r.txn.into()]));
    let mut past = HashMap::new();
    for row in rows(connection, include_str!("past.sql"), list).await? {
        let place: i64 = get!(row, "n");
        let (n, request) = asked[usize::try_from(place).map_err(|_| unreadable(&place))?];
        let same = same_cost(request, get!(row, "cost"));
        past.insert(n, same.and_then(|()| decision(&row, request)));
    }
    Ok(past)
}

fn same_cost(request: &Request, cost: i64) -> Result<()> {
    if cost == request.cost {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "transaction {} was decided with cost {cost}, not {}; use a new id",
        request.txn, request.cost
    )))
}

async fn load_bases(connection: &mut SqliteConnection, buckets: &mut [Bucket<'_>]) -> Result<()> {
    let asked = buckets.iter_mut().filter_map(|bucket| Some((bucket.after_us()?, bucket)));
    let mut asked: Vec<_> = asked.collect();
    let list = List::of(asked.iter().map(|(us, b)| [b.zone_id.into(), b.key.into(), (*us).into()]));
    for (n, [], base) in numbers(connection, include_str!("windows.sql"), list).await? {
        let bucket = &mut asked[n].1;
        bucket.base = base.ok_or_else(|| {
            Error::database(format!(
                "the ledger of a bucket in zone {} lacks rows of its window; it was changed from outside",
                bucket.zone_id
            ))
        })?;
    }
    Ok(())
}

/// The exact waits of what was blocked: one look at the ledger for each total of a bucket.
async fn load_waits(
    connection: &mut SqliteConnection,
    buckets: &[Bucket<'_>],
    places: &[usize],
    answers: &mut [Answer<'_>],
) -> Result<()> {
    let mut blocked: Vec<_> = (answers.iter_mut().zip(places))
        .filter_map(|(answer, &place)| match answer {
            Answer::New(turn) => Some((place, turn.search?, turn)),
            _ => None,
        })
        .collect();
    let asked: BTreeMap<_, _> = blocked.iter().map(|&(place, ref s, _)| ((place, s.total), *s)).collect();
    let asked: Vec<_> = asked.into_iter().collect();
    let list = List::of(asked.iter().map(|((place, _), search)| {
        let Bucket { zone_id, key, .. } = buckets[*place];
        [zone_id.into(), key.into(), search.total.into(), search.after_us.into(), search.highest_bit().into()]
    }));
    let mut reached = HashMap::new();
    for (n, [], at_us) in numbers(connection, include_str!("waits.sql"), list).await? {
        reached.insert(asked[n].0, at_us);
    }
    for (place, search, turn) in &mut blocked {
        turn.wait(reached.get(&(*place, search.total)).copied().flatten())?;
    }
    Ok(())
}

async fn append(
    connection: &mut SqliteConnection,
    requests: &[Request],
    checks: Option<i32>,
    answers: &[Answer<'_>],
) -> Result<()> {
    let kind = if checks.is_some() { "coalesced" } else { "check" };
    let mut list = List::default();
    for (request, answer) in requests.iter().zip(answers) {
        let Answer::New(Turn { outcome, before, .. }) = answer else { continue };
        if !request.leaves_row() {
            continue;
        }
        let head = &outcome.head;
        list.push([
            request.txn.into(),
            request.zone_id.into(),
            head.zone_version.into(),
            request.key.as_str().into(),
            head.seq.into(),
            kind.into(),
            checks.unwrap_or(1).into(),
            i64::from(outcome.blocked).into(),
            outcome.reason.as_str().into(),
            request.cost.into(),
            outcome.spent.into(),
            head.spent_total.into(),
            outcome.remaining.into(),
            outcome.retry_after_us.into(),
            head.level.into(),
            head.last_us.into(),
            (before.seq > 0).then_some(before.last_us).into(),
        ]);
    }
    rows(connection, include_str!("append.sql"), list).await?;
    Ok(())
}

/// Runs a statement over a list; not at all when there is nothing in it.
async fn rows(connection: &mut SqliteConnection, sql: &'static str, list: List) -> Result<Vec<SqliteRow>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(sql).bind(list.json()).fetch_all(connection).await.map_err(error)
}

/// What a statement says in one text: rows of a place in the list, some numbers, and one that may be missing.
async fn numbers<const N: usize>(
    connection: &mut SqliteConnection,
    sql: &'static str,
    list: List,
) -> Result<Vec<(usize, [i64; N], Option<i64>)>> {
    let said = rows(connection, sql, list).await?;
    let Some(row) = said.first() else { return Ok(Vec::new()) };
    let text: Option<&str> = get!(row, "numbers");
    let read = |row: &str| {
        let mut words = row.split(' ');
        let place = words.next()?.parse().ok()?;
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = words.next()?.parse().ok()?;
        }
        Some((place, numbers, words.next().map(str::parse).transpose().ok()?))
    };
    let rows = text.into_iter().flat_map(|text| text.split(','));
    rows.map(|row| read(row).ok_or_else(|| unreadable(&row))).collect()
}

fn unreadable(said: &dyn std::fmt::Display) -> Error {
    Error::database(format!("the database said {said} where other numbers were asked for"))
}

fn told(request: &Request, turn: &Turn<'_>) -> Result<Decision> {
    let Turn { outcome, current, .. } = turn;
    Ok(Decision {
        zone: request.zone.clone(),
        key: request.key.clone(),
        txn_id: request.txn,
        blocked: outcome.blocked,
        reason: outcome.reason,
        limit: current.policy.limit(),
        remaining: outcome.remaining,
        retry_after_us: outcome.retry_after_us,
        seq: request.leaves_row().then_some(outcome.head.seq),
        zone_version: current.version,
        decided_at: from_us(outcome.decided_us)?,
        replayed: false,
    })
}
