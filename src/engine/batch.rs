//! Checks by the batch: load, decide, write, in as many statements for many checks as for one.

use std::collections::HashMap;

use uuid::Uuid;

use super::bucket::{Bucket, Turn};
use super::settle::{is_so, settle};
use super::{Fate, Name, Passing, Question, Request, Session, Wanted, Writing, buckets, distinct, from_us};
use crate::decide::Ask;
use crate::decision::Decision;
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::zone::Durability;

/// The answer to a check of the batch.
enum Answer {
    New(Box<Turn>),
    /// Its transaction was decided before the batch.
    Past(Decision),
    /// Its transaction was decided by an earlier check of the batch.
    Again(usize),
}

pub(crate) struct Done {
    pub answers: Vec<Answered>,
    /// Of each bucket's zone, by the version that decided.
    pub durabilities: Vec<(i32, Durability)>,
}

/// The result of a check.
pub(crate) enum Answered {
    Decided(Decision),
    /// Nothing: its bucket was not where it was held. Never [`Fate::Appended`].
    Undone(Fate),
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Answered {
    pub fn is_undone(&self) -> bool {
        matches!(self, Self::Undone(_))
    }
}

/// Decides the requests in order, at one reading of the clock.
pub(crate) async fn check(session: &mut dyn Session, requests: &[Request], passing: Passing) -> Result<Done> {
    let (names, places) = distinct(requests.iter().map(|request| (request.zone_id, request.key.as_str())));
    let named: Vec<_> = (0..requests.len()).filter(|&n| is_named(&requests[n])).collect();
    let txns: Vec<_> = named.iter().map(|&n| (places[n], requests[n].txn)).collect();
    let mut moves = vec![false; names.len()];
    for (request, &place) in requests.iter().zip(&places) {
        moves[place] |= request.leaves_row();
    }
    let mut held = session.hold(&Wanted { names: &names, moves: &moves, txns: &txns, window_us: 0 }).await?;
    let mut answers: Vec<Option<Answer>> = requests.iter().map(|_| None).collect();
    for (n, row) in held.past.drain(..).map(|(txn, row)| (named[txn], row)) {
        refuse_taken(&row)?;
        if row.kind.is_check() {
            answers[n] = Some(Answer::Past(past(&requests[n], &row)?));
        }
    }
    let mut buckets = buckets(&names, &mut held);
    match passing {
        Passing::Each | Passing::Free => {}
        Passing::Together => all_or_none(requests, &answers)?,
        Passing::Unasked(checks) => {
            for n in (0..requests.len()).filter(|&n| answers[n].is_none()) {
                follows(session, places[n], names[places[n]], checks, buckets[places[n]].now_us()).await?;
            }
        }
    }

    let mut decided: HashMap<(usize, Uuid), usize> = HashMap::new();
    settle(session, &mut buckets, |buckets| {
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
    let writing = write(requests, &places, passing, &buckets, &answers);
    let fates = if writing.rows.is_empty() { Vec::new() } else { session.append(&writing).await?.fates };

    let mut told: Vec<Answered> = Vec::with_capacity(requests.len());
    for ((request, &place), answer) in requests.iter().zip(&places).zip(answers) {
        let fate = writing.place(place);
        let fate = fate.and_then(|place| fates.get(place).copied()).unwrap_or(Fate::Appended);
        told.push(match (answer, fate) {
            (Answer::Past(decision), _) => Answered::Decided(decision),
            (Answer::New(turn), Fate::Appended) => Answered::Decided(tell(request, &buckets[place], &turn)?),
            (Answer::Again(first), _) => match &told[first] {
                Answered::Decided(decision) => {
                    Answered::Decided(Decision { replayed: true, ..decision.clone() })
                }
                Answered::Undone(fate) => Answered::Undone(*fate),
            },
            (_, fate) => Answered::Undone(fate),
        });
    }
    let durabilities =
        buckets.iter().map(|bucket| Ok((bucket.name.0, bucket.current()?.policy.durability())));
    Ok(Done { durabilities: durabilities.collect::<Result<_>>()?, answers: told })
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
    places: &[usize],
    passing: Passing,
    buckets: &[Bucket<'w>],
    answers: &[Answer],
) -> Writing<'w> {
    let checks = passing.unasked();
    let mut writing = Writing::new(buckets);
    writing.together = matches!(passing, Passing::Together);
    for ((request, &place), answer) in requests.iter().zip(places).zip(answers) {
        if let Answer::New(turn) = answer
            && request.leaves_row()
        {
            writing.check(place, request, checks, turn);
        }
    }
    for (place, _) in buckets.iter().enumerate().filter(|(_, bucket)| bucket.forgets_holds()) {
        writing.drop_ended(place);
    }
    writing
}

/// Refuses the transaction of what a process took.
pub(super) fn refuse_taken(row: &LedgerRow) -> Result<()> {
    if row.kind != Kind::Local {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "transaction {} is what a process took for local decisions; use another one",
        row.txn_id
    )))
}

pub(super) fn ask(request: &Request) -> Ask<'_> {
    let Request { cost, critical, ttl_us, .. } = *request;
    Ask { cost, critical, member: request.member.as_deref(), ttl_us, held_back: false }
}

/// True when its transaction may have been decided before.
fn is_named(request: &Request) -> bool {
    request.leaves_row() && !request.fresh
}

/// The decision that was made before, when the same was asked.
pub(super) fn past(request: &Request, row: &LedgerRow) -> Result<Decision> {
    // Of what passed unchecked no member is known.
    let member = if row.kind == Kind::Unchecked { request.about() } else { row.member.as_deref() };
    same(request, row.cost, member)?;
    Ok(Decision {
        zone: request.zone.clone(),
        key: request.key.clone(),
        txn_id: row.txn_id,
        blocked: row.blocked,
        reason: row.reason,
        limit: row.zone_limit,
        remaining: row.remaining,
        retry_after_us: row.retry_after_us,
        delay_us: row.delay_us,
        ends_at: row.ends_us.map(from_us).transpose()?,
        seq: Some(row.seq),
        zone_version: row.zone_version,
        decided_at: from_us(row.at_us)?,
        replayed: true,
        local: None,
    })
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
    if member != request.about() {
        return Err(Error::conflict(format!(
            "transaction {txn} was decided about another member or shape; use a new id"
        )));
    }
    Ok(())
}

/// Fails where no check of the bucket was blocked that so many could have followed: by a zone that coalesces them, for some
/// time. Memory keeps that for a second; their row may come later by as long as a call may take.
async fn follows(
    session: &mut dyn Session,
    bucket: usize,
    name: Name<'_>,
    checks: i32,
    now_us: i64,
) -> Result<()> {
    if is_so(session, bucket, name, Question::BlockedSince(now_us.saturating_sub(60_000_000))).await? {
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

pub(super) fn tell(request: &Request, bucket: &Bucket<'_>, turn: &Turn) -> Result<Decision> {
    let outcome = &turn.outcome;
    Ok(Decision {
        zone: request.zone.clone(),
        key: request.key.clone(),
        txn_id: request.txn,
        blocked: outcome.blocked,
        reason: outcome.reason,
        limit: outcome.limit,
        remaining: outcome.remaining,
        retry_after_us: bucket.wait_us(outcome.retry_after_us),
        delay_us: bucket.wait_us(outcome.delay_us),
        ends_at: outcome.ends_us.map(from_us).transpose()?,
        seq: request.leaves_row().then(|| turn.outcome.seq()),
        zone_version: outcome.head.zone_version,
        decided_at: from_us(outcome.decided_us)?,
        replayed: false,
        local: None,
    })
}
