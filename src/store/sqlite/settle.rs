//! Asks the ledger for what the core wants to know, until it knows enough.

use sqlx::SqliteConnection;

use super::bucket::Bucket;
use super::known::{Answers, Known};
use super::list::{List, Value};
use super::statement::{numbers, unreadable};
use crate::error::{Error, Result};

/// Does the work again and again until nothing is lacking. What it lacks, of all buckets together, is asked for in one
/// statement of each kind.
pub(super) async fn settle<'b>(
    connection: &mut SqliteConnection,
    buckets: &mut [Bucket<'b>],
    mut work: impl FnMut(&mut [Bucket<'b>]) -> Result<()>,
) -> Result<()> {
    buckets.iter().try_for_each(Bucket::look_ahead)?;
    ask(connection, buckets).await?;
    loop {
        work(buckets)?;
        if !ask(connection, buckets).await? {
            return Ok(());
        }
    }
}

/// False when there was nothing to ask.
async fn ask(connection: &mut SqliteConnection, buckets: &mut [Bucket<'_>]) -> Result<bool> {
    let totals = ask_for(
        connection,
        buckets,
        |known| &mut known.totals,
        include_str!("windows.sql"),
        |_, us| [us.into(), Value::None, Value::None],
    );
    let totals = totals.await?;
    let reached = ask_for(
        connection,
        buckets,
        |known| &mut known.reached,
        include_str!("waits.sql"),
        |known, total| {
            let search = known.search(total);
            [total.into(), search.after_us.into(), search.highest_bit.into()]
        },
    );
    let reached = reached.await?;
    let strikes = ask_for(
        connection,
        buckets,
        |known| &mut known.strikes,
        include_str!("strikes.sql"),
        |_, us| [us.into(), Value::None, Value::None],
    );
    let strikes = strikes.await?;
    buckets.iter_mut().for_each(Bucket::go_on);
    Ok(totals || reached || strikes)
}

async fn ask_for(
    connection: &mut SqliteConnection,
    buckets: &mut [Bucket<'_>],
    answers: impl Fn(&mut Known) -> &mut Answers,
    sql: &'static str,
    ask: impl Fn(&mut Known, i64) -> [Value<'static>; 3],
) -> Result<bool> {
    let mut asked = Vec::new();
    let mut list = List::default();
    for (place, bucket) in buckets.iter_mut().enumerate() {
        for question in answers(&mut bucket.known).lacking() {
            let [a, b, c] = ask(&mut bucket.known, question);
            list.push([bucket.zone_id.into(), bucket.key.into(), a, b, c]);
            asked.push((place, question));
        }
    }
    let said = numbers(connection, sql, list).await?;
    if said.len() < asked.len() {
        return Err(unreadable(&format_args!("{} rows for {}", said.len(), asked.len())));
    }
    for (n, [], answer) in said {
        let (place, question) = asked[n];
        let bucket = &mut buckets[place];
        let answer = answer.ok_or_else(|| {
            Error::database(format!(
                "the ledger of a bucket in zone {} lacks rows of its window; it was changed from outside",
                bucket.zone_id
            ))
        })?;
        answers(&mut bucket.known).put(question, answer);
    }
    Ok(!asked.is_empty())
}
