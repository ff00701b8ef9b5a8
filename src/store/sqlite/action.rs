//! What happens to buckets besides checks: load, let it happen, write.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::bucket::Mark;
use super::list::List;
use super::settle::settle;
use super::statement::{place, rows};
use super::write::Writing;
use super::{Clock, error, from_us, load, time, time_if};
use crate::decide::{Charge, Event, Undo};
use crate::entry::{Kind, Recorded};
use crate::error::{Error, Result};
use crate::store::{Action, What};

/// A row that an action's transaction has in its bucket.
struct Past {
    kind: Kind,
    charge: Charge,
    told: Recorded,
}

/// What becomes of an action.
enum Answer {
    New(Box<Mark>),
    Past(Recorded),
}

/// Lets the actions happen in order, at one reading of the clock. The caller holds the write lock.
pub(super) async fn act(
    connection: &mut SqliteConnection,
    actions: &[Action],
    clock: &Clock,
) -> Result<Vec<Recorded>> {
    let (names, places) = load::distinct(actions.iter().map(|action| (action.zone_id, action.key.as_str())));
    let limits = actions.iter().filter_map(|action| match action.what {
        What::Override(over) => over?.limit,
        _ => None,
    });
    let window_us = limits.map(|limit| limit.window_us).max().unwrap_or(0);
    let mut buckets = load::buckets(connection, &names, window_us, clock).await?;
    let past = load_past(connection, actions).await?;
    for (action, past) in actions.iter().zip(&past) {
        if let What::Unchecked(_) = action.what
            && past.is_empty()
        {
            may_pass_unchecked(connection, action.zone_id).await?;
        }
    }
    let mut answers: Vec<Option<Answer>> = actions.iter().map(|_| None).collect();
    settle(connection, &mut buckets, |buckets| {
        for (n, (action, &place)) in actions.iter().zip(&places).enumerate() {
            if answers[n].is_some() {
                continue;
            }
            answers[n] = match asked(action, &past[n])? {
                Asked::Event(event) => buckets[place].happen(event)?.map(|mark| Answer::New(Box::new(mark))),
                Asked::Before(told) => Some(Answer::Past(told.clone())),
            };
        }
        Ok(())
    })
    .await?;
    let answers: Vec<_> = actions.iter().zip(answers.into_iter().flatten()).collect();
    let mut writing = Writing::new(&buckets);
    for (action, answer) in &answers {
        if let Answer::New(mark) = answer {
            writing.mark(action, mark);
        }
    }
    buckets.iter().for_each(|bucket| writing.bucket(bucket));
    writing.write(connection).await?;
    let tell = |(action, answer)| match answer {
        Answer::New(mark) => told(action, &mark),
        Answer::Past(told) => Ok(told),
    };
    answers.into_iter().map(tell).collect()
}

/// What an action asks for.
enum Asked<'p> {
    Event(Event),
    /// What has happened already.
    Before(&'p Recorded),
}

fn asked<'p>(action: &Action, past: &'p [Past]) -> Result<Asked<'p>> {
    let kind = action.what.kind();
    let of = |is: &dyn Fn(Kind) -> bool| past.iter().find(|row| is(row.kind));
    let same = |other| other == kind;
    let (done, event) = match action.what {
        What::Undo(undo) => match of(&Kind::is_undo) {
            Some(done) => {
                let other = done.kind != kind || matches!(undo, Undo::Settle(cost) if cost != done.told.cost);
                if other {
                    return Err(Error::conflict(format!(
                        "transaction {} was ended in the bucket {:?} of zone {:?} by a {} of {} already",
                        action.txn, action.key, action.zone, done.kind, done.told.cost
                    )));
                }
                return Ok(Asked::Before(&done.told));
            }
            None => {
                let charge = of(&|kind| kind.is_check() && kind != Kind::Coalesced).ok_or_else(|| {
                    Error::invalid(format!(
                        "transaction {} was not decided in the bucket {:?} of zone {:?}; look where it was: \
                         tallygate history --txn {}",
                        action.txn, action.key, action.zone, action.txn
                    ))
                })?;
                (None, Event::Undo(undo, charge.charge))
            }
        },
        What::Ban(for_us) => (of(&same), Event::Ban(for_us)),
        What::Unban => (of(&same), Event::Unban),
        What::Override(over) => (of(&same), Event::Override(over)),
        What::Unchecked(cost) => (of(&Kind::is_check), Event::Unchecked(cost)),
    };
    Ok(done.map_or(Asked::Event(event), |done| Asked::Before(&done.told)))
}

/// Fails in a zone that was never open while the database did not answer.
async fn may_pass_unchecked(connection: &mut SqliteConnection, zone_id: i32) -> Result<()> {
    let was_open = sqlx::query_scalar(include_str!("was_open.sql")).bind(zone_id);
    if was_open.fetch_one(connection).await.map_err(error)? {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "nothing can have passed unchecked in zone {zone_id}, which was never open; set it so: tallygate zone set \
         --on-outage open"
    )))
}

/// The rows that the actions' transactions have in their buckets, in order.
async fn load_past(connection: &mut SqliteConnection, actions: &[Action]) -> Result<Vec<Vec<Past>>> {
    let list = List::of(
        actions
            .iter()
            .map(|action| [action.zone_id.into(), action.key.as_str().into(), (&action.txn).into()]),
    );
    let mut past: Vec<Vec<_>> = actions.iter().map(|_| Vec::new()).collect();
    for row in rows(connection, include_str!("past_rows.sql"), list).await? {
        let n = place(&row)?;
        past[n].push(Past {
            kind: choice!(row, "kind"),
            charge: charge(&row)?,
            told: recorded(&row, &actions[n])?,
        });
    }
    Ok(past)
}

fn charge(row: &SqliteRow) -> Result<Charge> {
    let kind: Kind = choice!(row, "kind");
    Ok(Charge {
        seq: get!(row, "seq"),
        at_us: get!(row, "created_at"),
        spent: get!(row, "spent"),
        blocked: get!(row, "blocked"),
        reserved: kind == Kind::Reserve,
        member: get!(row, "has_member"),
        ends_us: get!(row, "ends_at"),
    })
}

fn recorded(row: &SqliteRow, action: &Action) -> Result<Recorded> {
    recorded!(row, action)
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
