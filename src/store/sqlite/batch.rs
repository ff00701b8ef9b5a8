//! Checks by the batch: load, decide, write, in as many statements for many checks as for one.

use std::collections::HashMap;

use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::bucket::{Bucket, Turn};
use super::list::List;
use super::settle::settle;
use super::statement::{place, rows};
use super::write::Writing;
use super::{Clock, decision, error, from_us, load};
use crate::decide::Ask;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::Request;
use crate::zone::Durability;

/// Which checks of a batch pass.
#[derive(Clone, Copy)]
pub(super) enum Passing {
    /// Each that fits.
    Each,
    /// All, of different buckets, or none.
    Together,
    /// None: each row stands for so many checks that were blocked without asking.
    Unasked(i32),
}

/// How a check of the batch is answered.
enum Answer {
    New(Box<Turn>),
    /// Its transaction was decided before the batch.
    Past(Decision),
    /// Its transaction was decided by an earlier check of the batch.
    Again(usize),
}

pub(super) struct Done {
    pub decisions: Vec<Decision>,
    /// Of each bucket's zone, by the version that decided.
    pub durabilities: Vec<(i32, Durability)>,
}

/// Decides the requests in order, at one reading of the clock. The caller holds the write lock.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    requests: &[Request],
    passing: Passing,
    clock: &Clock,
) -> Result<Done> {
    let names = requests.iter().map(|request| (request.zone_id, request.key.as_str()));
    let (names, places) = load::distinct(names);
    let mut buckets = load::buckets(connection, &names, 0, clock).await?;
    let asked = requests.iter().zip(&places).enumerate();
    let asked = asked.filter(|(_, (request, place))| is_named(request) && buckets[**place].has_rows());
    let asked = asked.map(|(n, _)| n).collect();
    let mut answers = load_past(connection, requests, asked).await?;
    match passing {
        Passing::Each => {}
        Passing::Together => all_or_none(requests, &answers)?,
        Passing::Unasked(checks) => {
            for (n, request) in requests.iter().enumerate().filter(|(n, _)| answers[*n].is_none()) {
                follows(connection, request, checks, buckets[places[n]].now_us()).await?;
            }
        }
    }

    let mut decided: HashMap<(usize, Uuid), usize> = HashMap::new();
    settle(connection, &mut buckets, |buckets| {
        for (n, (request, &place)) in requests.iter().zip(&places).enumerate() {
            match &mut answers[n] {
                Some(Answer::New(turn)) => buckets[place].decide_again(turn, &ask(request))?,
                Some(_) => {}
                answer => *answer = new(&mut buckets[place], requests, n, place, passing, &mut decided)?,
            }
        }
        Ok(())
    })
    .await?;
    let mut answers: Vec<Answer> = answers.into_iter().flatten().collect();
    if let Passing::Together = passing {
        hold_back(requests, &places, &mut buckets, &mut answers)?;
    }
    write(requests, passing, &buckets, &answers).write(connection).await?;

    let mut decisions: Vec<Decision> = Vec::with_capacity(requests.len());
    for (request, answer) in requests.iter().zip(answers) {
        decisions.push(match answer {
            Answer::New(turn) => told(request, &turn)?,
            Answer::Past(decision) => decision,
            Answer::Again(first) => Decision { replayed: true, ..decisions[first].clone() },
        });
    }
    let durabilities =
        buckets.iter().map(|bucket| Ok((bucket.zone_id, bucket.current()?.policy.durability())));
    Ok(Done { decisions, durabilities: durabilities.collect::<Result<_>>()? })
}

/// An answer to the request of a place in the batch; none when the database must be asked first.
fn new(
    bucket: &mut Bucket<'_>,
    requests: &[Request],
    n: usize,
    place: usize,
    passing: Passing,
    decided: &mut HashMap<(usize, Uuid), usize>,
) -> Result<Option<Answer>> {
    let request = &requests[n];
    if let Some(&first) = decided.get(&(place, request.txn)).filter(|_| is_named(request)) {
        same(request, requests[first].cost, requests[first].member.as_deref())?;
        return Ok(Some(Answer::Again(first)));
    }
    let turn = match passing {
        Passing::Unasked(_) => bucket.stay_blocked()?,
        _ => bucket.decide(&ask(request), request.leaves_row())?,
    };
    if turn.is_some() && is_named(request) {
        decided.insert((place, request.txn), n);
    }
    Ok(turn.map(|turn| Answer::New(Box::new(turn))))
}

/// Blocks those that would have passed, when one is blocked.
fn hold_back(
    requests: &[Request],
    places: &[usize],
    buckets: &mut [Bucket<'_>],
    answers: &mut [Answer],
) -> Result<()> {
    if !answers.iter().any(|answer| matches!(answer, Answer::New(turn) if turn.outcome.blocked)) {
        return Ok(());
    }
    for ((request, &place), answer) in requests.iter().zip(places).zip(answers) {
        if let Answer::New(turn) = answer
            && turn.outcome.reason.allows()
        {
            buckets[place].hold_back(turn, &ask(request), request.leaves_row())?;
        }
    }
    Ok(())
}

fn write<'w>(
    requests: &'w [Request],
    passing: Passing,
    buckets: &[Bucket<'w>],
    answers: &[Answer],
) -> Writing<'w> {
    let checks = if let Passing::Unasked(checks) = passing { Some(checks) } else { None };
    let mut writing = Writing::new(buckets);
    for (request, answer) in requests.iter().zip(answers) {
        if let Answer::New(turn) = answer
            && request.leaves_row()
        {
            writing.check(request, checks, turn);
        }
    }
    for bucket in buckets {
        writing.bucket(bucket);
        if bucket.is_held() && bucket.has_new_holds() {
            writing.drop_ended(bucket);
        }
    }
    writing
}

fn ask(request: &Request) -> Ask<'_> {
    let Request { cost, critical, ttl_us, .. } = *request;
    Ask { cost, critical, member: request.member.as_deref(), ttl_us, held_back: false }
}

/// True when its transaction may have been decided before.
fn is_named(request: &Request) -> bool {
    request.leaves_row() && !request.fresh
}

/// What was decided before for those of the requests that may have been.
async fn load_past(
    connection: &mut SqliteConnection,
    requests: &[Request],
    asked: Vec<usize>,
) -> Result<Vec<Option<Answer>>> {
    let list = List::of(asked.iter().map(|&n| {
        let Request { zone_id, key, txn, .. } = &requests[n];
        [(*zone_id).into(), key.as_str().into(), txn.into()]
    }));
    let mut past: Vec<_> = requests.iter().map(|_| None).collect();
    for row in rows(connection, include_str!("past.sql"), list).await? {
        let n = asked[place(&row)?];
        let request = &requests[n];
        let (kind, member): (String, Option<String>) = (get!(row, "kind"), get!(row, "member"));
        // Of what passed unchecked no member is known.
        let member = if kind == "unchecked" { request.member.as_deref() } else { member.as_deref() };
        same(request, get!(row, "cost"), member)?;
        past[n] = Some(Answer::Past(decision(&row, request)?));
    }
    Ok(past)
}

/// Fails where the transaction was decided with another cost, or about another member.
fn same(request: &Request, cost: i64, member: Option<&str>) -> Result<()> {
    let Request { txn, .. } = request;
    if cost != request.cost {
        let asked = request.cost;
        return Err(Error::conflict(format!(
            "transaction {txn} was decided with cost {cost}, not {asked}; use a new id"
        )));
    }
    if member != request.member.as_deref() {
        return Err(Error::conflict(format!(
            "transaction {txn} was decided about another member; use a new id"
        )));
    }
    Ok(())
}

/// Fails where no check of the bucket was blocked that so many could have followed: by a zone that coalesces them, for some
/// time. Memory keeps that for a second; their row may come later by as long as a call may take.
async fn follows(
    connection: &mut SqliteConnection,
    request: &Request,
    checks: i32,
    now_us: i64,
) -> Result<()> {
    let blocked = sqlx::query_scalar(include_str!("flood.sql")).bind(request.zone_id).bind(&request.key);
    let blocked = blocked.bind(now_us.saturating_sub(60_000_000));
    if blocked.fetch_one(connection).await.map_err(error)? {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "no row can stand for {checks} checks: none was blocked here within a minute by a zone with coalesced rows; \
         check each"
    )))
}

/// Limits that were asked together are told together.
fn all_or_none(requests: &[Request], past: &[Option<Answer>]) -> Result<()> {
    let lacking = requests.iter().zip(past).find(|(request, past)| request.leaves_row() && past.is_none());
    match lacking {
        Some((request, _)) if past.iter().any(Option::is_some) => Err(Error::conflict(format!(
            "transaction {} was decided before, but not in the bucket {:?} of zone {:?}; use a new id",
            request.txn, request.key, request.zone
        ))),
        _ => Ok(()),
    }
}

fn told(request: &Request, turn: &Turn) -> Result<Decision> {
    let outcome = &turn.outcome;
    Ok(Decision {
        zone: request.zone.clone(),
        key: request.key.clone(),
        txn_id: request.txn,
        blocked: outcome.blocked,
        reason: outcome.reason,
        limit: outcome.limit,
        remaining: outcome.remaining,
        retry_after_us: outcome.retry_after_us,
        delay_us: outcome.delay_us,
        ends_at: outcome.ends_us.map(from_us).transpose()?,
        seq: request.leaves_row().then(|| turn.seq()),
        zone_version: outcome.head.zone_version,
        decided_at: from_us(outcome.decided_us)?,
        replayed: false,
    })
}
