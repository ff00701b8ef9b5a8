//! Upkeep on MySQL and MariaDB: partitions are split and dropped under a short wait for the table; the rest goes in small
//! transactions.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};
use tokio::time::Instant;

use super::{MySql, end, error, time, time_if};
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::upkeep::{Facts, Maintained, Needed, Partition, Plan, months, next_month};

/// How often a step is tried that did not get its lock: a second each, while others wait behind it.
const TRIES: u32 = 20;

pub(super) const BEGIN: &str = "set transaction isolation level read committed; start transaction";

impl MySql {
    /// The database's time, and what is known of its zones.
    pub async fn facts(&self) -> Result<(DateTime<Utc>, Vec<Facts>)> {
        let mut lease = self.lease().await?;
        let now =
            sqlx::query("select utc_timestamp(6) as now").fetch_all(&mut *lease).await.map_err(error)?;
        let now = now.first().map(|row| time(row, "now")).transpose()?;
        let rows = sqlx::query(include_str!("upkeep/facts.sql")).fetch_all(&mut *lease).await;
        let facts = rows.map_err(error)?.into_iter().map(|row| {
            Ok(Facts {
                zone_id: get!(row, "id"),
                override_us: get!(row, "override_us"),
                open: time_if(&row, "open")?,
            })
        });
        let now = now.ok_or_else(|| Error::database("the database has no clock"))?;
        Ok((now, facts.collect::<Result<_>>()?))
    }

    /// One at a time; the other one does nothing. On a connection of its own, whose end gives back all that it has.
    pub async fn maintain(&self, plan: &Plan) -> Result<Maintained> {
        let mut connection = self.lease().await?.detach();
        let connection = &mut connection;
        let mut done = Maintained { dry_run: plan.dry_run, ..Maintained::default() };
        run(
            connection,
            "set session transaction isolation level read committed; set session lock_wait_timeout = 1",
        )
        .await?;
        if !alone(connection).await? {
            return Ok(Maintained { elsewhere: true, ..done });
        }
        ahead(connection, plan, &mut done).await?;
        if let Some(from) = plan.keep_from {
            drop_before(connection, plan, from, &mut done).await?;
        }
        for zone in &plan.zones {
            if !plan.dry_run {
                done.holds_removed += remove_holds(connection, zone).await?;
            }
            if let Some(since) = plan.idle_since {
                done.heads_removed += remove_heads(connection, plan, zone, since).await?;
            }
        }
        Ok(done)
    }
}

/// True when nobody else is at upkeep, for as long as the session lasts.
pub(super) async fn alone(connection: &mut MySqlConnection) -> Result<bool> {
    let lock = "select coalesce(get_lock(concat('tallygate:', left(sha2(database(), 256), 40)), 0), 0) = 1";
    sqlx::query_scalar(lock).fetch_one(connection).await.map_err(error)
}

async fn run(connection: &mut MySqlConnection, sql: &str) -> Result<()> {
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
        // What has rows is copied: into one partition that ends with this month.
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

async fn remove_holds(connection: &mut MySqlConnection, zone: &Needed) -> Result<u64> {
    let (mut removed, mut after) = (0, Vec::new());
    loop {
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        let keys = keys(&mut tx, include_str!("upkeep/holding.sql"), zone, &after, None).await?;
        let Some(last) = keys.last() else { return end(tx, Ok(removed)).await };
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
    }
}

async fn remove_heads(
    connection: &mut MySqlConnection,
    plan: &Plan,
    zone: &Needed,
    since: DateTime<Utc>,
) -> Result<u64> {
    let idle: i64 = sqlx::query_scalar(include_str!("upkeep/heads_count.sql"))
        .bind(zone.zone_id)
        .bind(since.naive_utc())
        .fetch_one(&mut *connection)
        .await
        .map_err(error)?;
    if plan.dry_run || idle == 0 {
        return Ok(idle.unsigned_abs());
    }
    // Committed before the first goes: from then on who finds no row looks at the ledger.
    sqlx::query("update zone_master set heads_removed = true where id = ? and not heads_removed")
        .bind(zone.zone_id)
        .execute(&mut *connection)
        .await
        .map_err(error)?;
    let (mut removed, mut after) = (0, Vec::new());
    loop {
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        let keys = keys(&mut tx, include_str!("upkeep/heads_idle.sql"), zone, &after, Some(since)).await?;
        let Some(last) = keys.last() else { return end(tx, Ok(removed)).await };
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
    }
}
