//! Events of buckets besides checks: load, let them happen, write.

use super::bucket::Mark;
use super::settle::{is_so, settle};
use super::{Action, Question, Session, Wanted, What, Writing, append_together, buckets, distinct, from_us};
use crate::decide::{Event, Undo, learn};
use crate::entry::{Kind, LedgerRow, Recorded};
use crate::error::{Error, Result};

/// The answer to an action.
enum Answer {
    New(Box<Mark>),
    /// It has happened already.
    Past(Recorded),
}

/// Lets the actions happen in order, at one reading of the clock.
pub(crate) async fn act(session: &mut dyn Session, actions: &[Action]) -> Result<Vec<Recorded>> {
    let (names, places) = distinct(actions.iter().map(|action| (action.zone_id, action.key.as_str())));
    let txns: Vec<_> = places.iter().zip(actions).map(|(&place, action)| (place, action.txn)).collect();
    let limits = actions.iter().filter_map(|action| match action.what {
        What::Override(over) => over?.limit,
        _ => None,
    });
    let window_us = limits.map(|limit| limit.window_us).max().unwrap_or(0);
    let login = match actions.iter().any(|action| action.what.is_an_operators()) {
        true => session.login().await?,
        false => None,
    };
    let mut held = session
        .hold(&Wanted { names: &names, moves: &vec![true; names.len()], txns: &txns, window_us })
        .await?;
    let mut past: Vec<Vec<LedgerRow>> = actions.iter().map(|_| Vec::new()).collect();
    for (n, row) in held.past.drain(..) {
        past[n].push(row);
    }
    let mut buckets = buckets(&names, &mut held);
    for (n, action) in actions.iter().enumerate() {
        if let What::Unchecked(_) = action.what
            && past[n].is_empty()
            && !is_so(session, places[n], names[places[n]], Question::WasOpen).await?
        {
            return Err(Error::invalid(format!(
                "nothing can have passed unchecked in zone {}, which was never open; set it so: tallygate zone set \
                 --on-outage open",
                action.zone_id
            )));
        }
    }
    let mut answers: Vec<Option<Answer>> = actions.iter().map(|_| None).collect();
    settle(session, &mut buckets, |buckets| {
        for (n, (action, &place)) in actions.iter().zip(&places).enumerate() {
            if answers[n].is_some() {
                continue;
            }
            answers[n] = match asked(action, &past[n])? {
                Asked::Event(event) => buckets[place].happen(event)?.map(|mark| Answer::New(Box::new(mark))),
                Asked::Before(row) => Some(Answer::Past(recorded(action, row)?)),
            };
        }
        Ok(())
    })
    .await?;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let mut writing = Writing::new(&buckets);
    for (((action, &place), answer), past) in actions.iter().zip(&places).zip(&answers).zip(&past) {
        let Answer::New(mark) = answer else { continue };
        let lesson = lesson(action, past);
        writing.mark(place, action, login.as_deref(), lesson.map(|(shape, _)| shape), mark);
        if let Some((shape, cost)) = lesson {
            let mut shapes = session.shapes(names[place]).await?;
            learn(&mut shapes, shape, cost, mark.happened.at_us);
            writing.teach(place, shapes);
        }
    }
    if !writing.rows.is_empty() {
        append_together(session, writing, "bucket").await?;
    }
    let tell = |(action, answer)| match answer {
        Answer::New(mark) => told(action, &mark),
        Answer::Past(told) => Ok(told),
    };
    actions.iter().zip(answers).map(tell).collect()
}

/// The lesson of a settlement: that a request of this shape came to so much.
fn lesson<'p>(action: &Action, past: &'p [LedgerRow]) -> Option<(&'p str, i64)> {
    let What::Undo(Undo::Settle(cost)) = action.what else { return None };
    let reserved = past.iter().find(|row| row.kind == Kind::Reserve)?;
    Some((reserved.member.as_deref()?, cost))
}

/// The question of an action.
enum Asked<'p> {
    Event(Event),
    /// The same has happened already.
    Before(&'p LedgerRow),
}

fn asked<'p>(action: &Action, past: &'p [LedgerRow]) -> Result<Asked<'p>> {
    let kind = action.what.kind();
    let of = |is: &dyn Fn(Kind) -> bool| past.iter().find(|row| is(row.kind));
    let same = |other| other == kind;
    let (done, event) = match action.what {
        What::Undo(undo) => match of(&Kind::is_undo) {
            Some(done) => {
                let other = done.kind != kind
                    || matches!(undo, Undo::Settle(cost) | Undo::Used(cost) if cost != done.cost);
                if other {
                    return Err(Error::conflict(format!(
                        "transaction {} was ended in the bucket {:?} of zone {:?} by a {} of {} already",
                        action.txn, action.key, action.zone, done.kind, done.cost
                    )));
                }
                return Ok(Asked::Before(done));
            }
            None => {
                let charge = of(&|kind| kind.is_charge() && kind != Kind::Coalesced).ok_or_else(|| {
                    Error::invalid(format!(
                        "transaction {} was not decided in the bucket {:?} of zone {:?}; look where it was: \
                         tallygate history --txn {}",
                        action.txn, action.key, action.zone, action.txn
                    ))
                })?;
                (None, Event::Undo(undo, charge.into()))
            }
        },
        What::Ban(for_us) => (of(&same), Event::Ban(for_us)),
        What::Unban => (of(&same), Event::Unban),
        What::Override(over) => (of(&same), Event::Override(over)),
        What::Unchecked(cost) => (of(&Kind::is_check), Event::Unchecked(cost)),
    };
    Ok(done.map_or(Asked::Event(event), Asked::Before))
}

/// The answer that was recorded before.
fn recorded(action: &Action, row: &LedgerRow) -> Result<Recorded> {
    Ok(Recorded {
        zone: action.zone.clone(),
        key: action.key.clone(),
        txn_id: action.txn,
        kind: action.what.kind(),
        cost: row.cost,
        spent: row.spent,
        remaining: row.remaining,
        ends_at: row.ends_us.map(from_us).transpose()?,
        seq: row.seq,
        zone_version: row.zone_version,
        recorded_at: from_us(row.at_us)?,
        replayed: true,
    })
}

fn told(action: &Action, mark: &Mark) -> Result<Recorded> {
    let Mark { happened, remaining, .. } = mark;
    Ok(Recorded {
        zone: action.zone.clone(),
        key: action.key.clone(),
        txn_id: action.txn,
        kind: action.what.kind(),
        cost: happened.cost,
        spent: happened.spent,
        remaining: *remaining,
        ends_at: happened.ends_us.map(from_us).transpose()?,
        seq: happened.head.seq,
        zone_version: happened.head.zone_version,
        recorded_at: from_us(happened.at_us)?,
        replayed: false,
    })
}
