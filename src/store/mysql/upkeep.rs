//! Upkeep on MySQL and MariaDB: partitions are split and dropped under a short wait for the table; the rest goes in small
//! transactions.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};
use tokio::time::Instant;

use super::{BEGIN, MySql, clock, end, error, number_of_error, removal, text, time, time_if};
use crate::decide::Override;
use crate::engine::{Action, What};
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::renewal::{Renewed, micros_between};
use crate::store::upkeep::{
    Facts, Going, Maintained, Maintenance, Needed, Partition, Plan, elsewhere, months, next_month,
};
use crate::zone::Limit;

/// The number of times that a step is tried that did not get its lock: a second each, while others wait
/// behind it.
const TRIES: u32 = 20;

impl MySql {
    /// The database's time, and what is known of its zones.
    pub async fn facts(&self) -> Result<(DateTime<Utc>, Vec<Facts>)> {
        let mut lease = self.lease().await?;
        let now = clock(&mut lease).await?;
        let rows = sqlx::query(include_str!("upkeep/facts.sql")).bind(now.naive_utc()).bind(now.naive_utc());
        let rows = rows.fetch_all(&mut *lease).await;
        let facts = rows.map_err(error)?.into_iter().map(|row| {
            Ok(Facts {
                zone_id: get!(row, "id"),
                override_us: get!(row, "override_us"),
                open: time_if(&row, "open")?,
                offered: time_if(&row, "offered")?,
            })
        });
        Ok((now, facts.collect::<Result<_>>()?))
    }

    /// The records anew of what is in force in a zone and has its row before a time.
    pub async fn in_force(
        &self,
        zone: &Needed,
        from: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Action>> {
        let rows = sqlx::query(include_str!("upkeep/in_force.sql"))
            .bind(zone.zone_id)
            .bind(now.naive_utc())
            .bind(from.naive_utc())
            .bind(now.naive_utc());
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| renewal!(row, zone, now)).collect()
    }

    pub async fn maintenance(&self) -> Result<Maintenance> {
        let facts = sqlx::query(include_str!("upkeep/maintenance.sql"));
        let row = facts.fetch_one(&mut *self.lease().await?).await.map_err(error)?;
        Ok(Maintenance {
            finished_at: time_if(&row, "finished_at")?,
            partitions_until: time_if(&row, "partitions_until")?,
        })
    }

    /// One at a time. On a connection of its own, whose end gives back all that it has.
    pub async fn maintain(&self, plan: &Plan) -> Result<Maintained> {
        let alone = Alone::begin(self).await?;
        let mut connection = self.lease().await?.detach();
        let connection = &mut connection;
        let mut done = Maintained { dry_run: plan.dry_run, ..Maintained::default() };
        run(
            connection,
            "set session transaction isolation level read committed; set session lock_wait_timeout = 1",
        )
        .await?;
        // Old rows go, too, where no partition can be made.
        let made = ahead(connection, plan, &mut done).await;
        let removed = remove(connection, plan, &mut done).await;
        let went = made.and(removed);
        if plan.dry_run || went.is_err() {
            alone.end().await;
        } else {
            alone.finish().await?;
        }
        went.map(|()| done)
    }
}

/// Nobody else is at upkeep, for as long as this is there: a connection whose one transaction holds the lock.
pub(super) struct Alone(MySqlConnection);

impl Alone {
    /// Fails when somebody else is at it.
    pub async fn begin(store: &MySql) -> Result<Self> {
        let mut connection = store.lease().await?.detach();
        // However long it idles.
        run(
            &mut connection,
            "set session wait_timeout = 31536000
                /*M!, session idle_transaction_timeout = 0, session idle_write_transaction_timeout = 0 */",
        )
        .await?;
        run(&mut connection, BEGIN).await?;
        let lock = sqlx::query(include_str!("upkeep/alone.sql"));
        if !lock.fetch_all(&mut connection).await.map_err(error)?.is_empty() {
            return Ok(Self(connection));
        }
        let finished = "select u.finished_at from zone_upkeep_lock u where u.id = 1";
        let finished = sqlx::query(finished).fetch_all(&mut connection).await.map_err(error)?;
        let finished = finished.first().map(|row| time_if(row, "finished_at")).transpose()?;
        Err(elsewhere(finished.flatten()))
    }

    /// Gives the lock back before it returns. The server notices a connection that is dropped only later, and refuses who comes next.
    pub async fn end(mut self) {
        run(&mut self.0, "rollback").await.ok();
    }

    async fn finish(mut self) -> Result<()> {
        let now = clock(&mut self.0).await?;
        let finished = sqlx::query("update zone_upkeep_lock set finished_at = ? where id = 1");
        finished.bind(now.naive_utc()).execute(&mut self.0).await.map_err(error)?;
        run(&mut self.0, "commit").await
    }
}

/// From now on who finds no row of a bucket in the zone looks at the ledger. Committed before the first one goes, and once more in each
/// transaction in which some go: by the time a joined caller sees whether its snapshot is from before that.
pub(super) async fn heads_go(connection: &mut MySqlConnection, zone_id: i32) -> Result<()> {
    let go = "insert into zone_bucket_removed (zone_id, removed_at) values (?, utc_timestamp(6))
        on duplicate key update
            removed_at = greatest(utc_timestamp(6), zone_bucket_removed.removed_at + interval 1 microsecond)";
    sqlx::query(go).bind(zone_id).execute(connection).await.map_err(error).map(drop)
}

pub(super) async fn run(connection: &mut MySqlConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map_err(error).map(drop)
}

/// Runs a statement that needs the table for itself, until it gets it.
async fn step(connection: &mut MySqlConnection, statement: &str) -> Result<()> {
    let mut tries = Tries::new(TRIES, Instant::now() + Duration::from_secs(120));
    loop {
        match run(connection, statement).await {
            Err(failed) if tries.again(&failed).await => {}
            result => return result,
        }
    }
}

async fn partitions(connection: &mut MySqlConnection) -> Result<Vec<Partition>> {
    let rows =
        sqlx::query(include_str!("upkeep/partitions.sql")).fetch_all(connection).await.map_err(error)?;
    let found = rows.iter().map(|row| Ok(Partition { name: get!(row, "name"), to: time_if(row, "to_at")? }));
    found.collect()
}

/// Splits the last partition, which has no end, by months. While it is empty that copies nothing.
async fn ahead(connection: &mut MySqlConnection, plan: &Plan, done: &mut Maintained) -> Result<()> {
    let partitions = partitions(connection).await?;
    let Some(last) = partitions.last().filter(|last| last.to.is_none()) else {
        return Err(Error::database("zone_txn has no partition without an end; see docs/operations.md"));
    };
    let name = &last.name;
    let newest = format!("select max(t.created_at) as newest from zone_txn partition ({name}) t");
    let newest = sqlx::query(AssertSqlSafe(newest)).fetch_all(&mut *connection).await.map_err(error)?;
    let newest = newest.first().map(|row| time_if(row, "newest")).transpose()?.flatten();
    let from = partitions.iter().rev().find_map(|partition| partition.to);
    let mut made = Vec::new();
    let from = match (from, newest) {
        // Rows are copied where there are any: into one partition that ends with this month.
        (_, Some(newest)) => {
            let to = next_month(newest).ok_or_else(|| Error::invalid("there is no month after that"))?;
            made.push((from.unwrap_or(newest).format("zone_txn_%Y_%m").to_string(), to));
            to
        }
        (Some(from), None) => from,
        // Before the first month that is ahead there is nothing yet.
        (None, None) => {
            let to = next_month(Utc::now()).ok_or_else(|| Error::invalid("there is no month after that"))?;
            made.push(("zone_txn_first".to_owned(), to));
            to
        }
    };
    made.extend(months(from, plan.ahead_until));
    if made.is_empty() {
        return Ok(());
    }
    if !plan.dry_run {
        let into: Vec<_> = made
            .iter()
            .map(|(month, to)| format!("partition {month} values less than ('{}')", to.format("%F %T")))
            .collect();
        let split = format!(
            "alter table zone_txn reorganize partition {name} into ({}, partition {name} values less than (maxvalue))",
            into.join(", ")
        );
        step(connection, &split).await?;
    }
    done.partitions_made.extend(made.into_iter().map(|(month, _)| month));
    Ok(())
}

/// Removes what is old, of the ledger and of buckets.
async fn remove(connection: &mut MySqlConnection, plan: &Plan, done: &mut Maintained) -> Result<()> {
    if let Some(from) = plan.keep_from {
        drop_before(connection, plan, from, done).await?;
    }
    for zone in &plan.zones {
        // A check that moved a row meanwhile ends the transaction (MariaDB's 1020); what was removed before stays so.
        let mut tries = Tries::new(TRIES, Instant::now() + Duration::from_secs(120));
        loop {
            match remove_of(connection, plan, zone, done).await {
                Err(failed) if tries.again(&failed).await => {}
                result => break result?,
            }
        }
    }
    Ok(())
}

/// Removes what is old of the buckets of a zone. A repetition counts only the rest.
async fn remove_of(
    connection: &mut MySqlConnection,
    plan: &Plan,
    zone: &Needed,
    done: &mut Maintained,
) -> Result<()> {
    if !plan.dry_run {
        remove_holds(connection, zone, &mut done.holds_removed).await?;
    }
    match plan.idle_since {
        Some(since) => remove_heads(connection, plan, zone, since, &mut done.heads_removed).await,
        None => Ok(()),
    }
}

/// Removes the partitions that end before a time. First they leave behind what is needed of them.
async fn drop_before(
    connection: &mut MySqlConnection,
    plan: &Plan,
    from: DateTime<Utc>,
    done: &mut Maintained,
) -> Result<()> {
    let old: Vec<_> = partitions(connection)
        .await?
        .into_iter()
        .filter_map(|found| Some((found.name, found.to?)).filter(|(_, to)| *to <= from))
        .collect();
    let Some(&(_, until)) = old.last() else { return Ok(()) };
    if !plan.dry_run {
        announce(connection, until).await?;
        record(connection, until).await?;
    }
    for (name, _) in old {
        if !plan.dry_run {
            step(connection, &format!("alter table zone_txn drop partition {name}")).await?;
        }
        done.partitions_dropped.push(name);
    }
    Ok(())
}

/// Records what is to go, before the first of it does. The removals of a run that was cut off are recorded: they are
/// finished first, so that nothing is recorded twice.
async fn announce(connection: &mut MySqlConnection, until: DateTime<Utc>) -> Result<()> {
    let before = "select max(r.cut_at) as cut_at from zone_removal r";
    let before = sqlx::query(before).fetch_one(&mut *connection).await.map_err(error)?;
    if let Some(before) = time_if(&before, "cut_at")? {
        record(connection, before).await?;
    }
    let (mut going, mut zone_id, mut key) = (Going::default(), i32::MIN, Vec::new());
    loop {
        let page = sqlx::query(include_str!("upkeep/drop_count.sql"))
            .bind(zone_id)
            .bind(zone_id)
            .bind(key.clone())
            .bind(until.naive_utc())
            .fetch_all(&mut *connection)
            .await
            .map_err(error)?;
        for row in &page {
            (zone_id, key) = (get!(row, "zone_id"), get!(row, "bucket_key"));
            let rows: i64 = get!(row, "ledger_rows");
            going.add(zone_id, rows.unsigned_abs());
        }
        if page.is_empty() {
            break;
        }
    }
    let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
    for (zone_id, removing) in going.removing(until) {
        removal::record(&mut tx, zone_id, removing).await?;
    }
    tx.commit().await.map_err(error)
}

async fn record(connection: &mut MySqlConnection, until: DateTime<Utc>) -> Result<()> {
    let (mut zone_id, mut key) = (i32::MIN, Vec::new());
    loop {
        let next = sqlx::query(include_str!("upkeep/drop_next.sql"))
            .bind(zone_id)
            .bind(zone_id)
            .bind(key.clone())
            .bind(until.naive_utc())
            .fetch_all(&mut *connection)
            .await
            .map_err(error)?;
        let Some(last) = next.last() else { return Ok(()) };
        (zone_id, key) = (get!(last, "zone_id"), get!(last, "bucket_key"));
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        for row in &next {
            let (bucket, seq): (Vec<u8>, i64) = (get!(row, "bucket_key"), get!(row, "seq"));
            let zone_id: i32 = get!(row, "zone_id");
            sqlx::query(include_str!("upkeep/drop_record.sql"))
                .bind(zone_id)
                .bind(bucket)
                .bind(time(row, "created_at")?.naive_utc())
                .bind(seq)
                .execute(&mut *tx)
                .await
                .map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
    }
}

/// The keys of a statement that locks.
async fn keys(
    connection: &mut MySqlConnection,
    sql: &'static str,
    zone: &Needed,
    after: &[u8],
    since: Option<DateTime<Utc>>,
) -> Result<Vec<Vec<u8>>> {
    let query = sqlx::query(sql).bind(zone.zone_id).bind(after.to_vec());
    let query = if let Some(since) = since { query.bind(since.naive_utc()) } else { query };
    let rows = query.fetch_all(connection).await.map_err(error)?;
    rows.iter().map(|row| Ok(get!(row, "bucket_key"))).collect()
}

async fn remove_holds(connection: &mut MySqlConnection, zone: &Needed, done: &mut u64) -> Result<()> {
    let mut after = Vec::new();
    loop {
        let mut removed = 0;
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        let keys = keys(&mut tx, include_str!("upkeep/holding.sql"), zone, &after, None).await?;
        let Some(last) = keys.last() else { return end(tx, Ok(())).await };
        after.clone_from(last);
        for key in keys {
            let gone = sqlx::query(include_str!("upkeep/holds_remove.sql"))
                .bind(zone.zone_id)
                .bind(key.clone())
                .bind(zone.since.naive_utc())
                .bind(zone.since.naive_utc())
                .execute(&mut *tx)
                .await
                .map_err(error)?;
            removed += gone.rows_affected();
            sqlx::query(include_str!("upkeep/holding_reset.sql"))
                .bind(zone.zone_id)
                .bind(key)
                .execute(&mut *tx)
                .await
                .map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
        *done += removed;
    }
}

async fn remove_heads(
    connection: &mut MySqlConnection,
    plan: &Plan,
    zone: &Needed,
    since: DateTime<Utc>,
    done: &mut u64,
) -> Result<()> {
    let idle: i64 = sqlx::query_scalar(include_str!("upkeep/heads_count.sql"))
        .bind(zone.zone_id)
        .bind(since.naive_utc())
        .fetch_one(&mut *connection)
        .await
        .map_err(error)?;
    if plan.dry_run || idle == 0 {
        *done += idle.unsigned_abs();
        return Ok(());
    }
    // While a joined caller has a new bucket they stay for the next run: other new ones would wait behind who waits for it.
    let may_go = async |connection: &mut MySqlConnection| match heads_go(connection, zone.zone_id).await {
        Err(held) if number_of_error(&held) == 1205 => Ok(false),
        told => told.map(|()| true),
    };
    run(connection, "set innodb_lock_wait_timeout = 1").await?;
    if !may_go(connection).await? {
        return Ok(());
    }
    let mut after = Vec::new();
    loop {
        let mut removed = 0;
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        if !may_go(&mut tx).await? {
            return end(tx, Ok(())).await;
        }
        let keys = keys(&mut tx, include_str!("upkeep/heads_idle.sql"), zone, &after, Some(since)).await?;
        let Some(last) = keys.last() else { return end(tx, Ok(())).await };
        after.clone_from(last);
        for key in keys {
            let gone = sqlx::query(include_str!("upkeep/head_remove.sql"))
                .bind(zone.zone_id)
                .bind(key)
                .execute(&mut *tx)
                .await
                .map_err(error)?;
            removed += gone.rows_affected();
        }
        tx.commit().await.map_err(error)?;
        *done += removed;
    }
}
