//! Upkeep on PostgreSQL: partitions are made, detached concurrently and dropped; the rest goes in small transactions.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::time::Instant;

use super::distributed::is_distributed;
use super::{Moment, Postgres, clock, error, removal, text, time, time_if};
use crate::decide::Override;
use crate::engine::{Action, What};
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::renewal::{Renewed, micros_between};
use crate::store::upkeep::{
    Facts, Going, Maintained, Maintenance, Needed, Partition, Plan, elsewhere, months, next_month,
};
use crate::zone::Limit;

/// The longest wait of a step that others must wait for: they wait behind it.
const LOCK_WAIT: &str = "set lock_timeout = '100ms'";
/// A step that makes others wait for nothing may take longer.
pub(super) const LONG_WAIT: &str = "set lock_timeout = '30s'";

/// The number of times that a step is tried that did not get its lock.
const TRIES: u32 = 100;

struct Found {
    partition: Partition,
    from: Option<DateTime<Utc>>,
    unfinished: bool,
    /// A run that was killed left its guard, see [`close`].
    guarded: bool,
}

impl Postgres {
    /// The database's time, and what is known of its zones.
    pub async fn facts(&self) -> Result<(DateTime<Utc>, Vec<Facts>)> {
        let mut lease = self.lease().await?;
        let now = clock(&mut lease).await?;
        let rows = sqlx::query(include_str!("upkeep/facts.sql")).bind(now).fetch_all(&mut *lease).await;
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
        let rows = sqlx::query(include_str!("upkeep/in_force.sql")).bind(zone.zone_id).bind(from).bind(now);
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
        let mut alone = Alone::begin(self).await?;
        let mut connection = self.lease().await?.detach();
        let connection = &mut connection;
        let mut done = Maintained { dry_run: plan.dry_run, ..Maintained::default() };
        run(connection, "set timezone = 'UTC'").await?;
        // Old rows go, too, where no partition can be made.
        let made = ahead(connection, plan, &mut alone, &mut done).await;
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
pub(super) struct Alone(PgConnection);

impl Alone {
    /// Fails when somebody else is at it.
    pub async fn begin(store: &Postgres) -> Result<Self> {
        let mut connection = store.lease().await?.detach();
        let locked = sqlx::raw_sql(include_str!("upkeep/alone.sql")).execute(&mut connection).await;
        let Err(fault) = locked else { return Ok(Self(connection)) };
        if fault.as_database_error().and_then(|fault| fault.code()).as_deref() != Some("55P03") {
            return Err(error(fault));
        }
        run(&mut connection, "rollback").await?;
        let finished = sqlx::query_scalar("select u.finished_at from zone_upkeep_lock u");
        let finished: Option<Moment> = finished.fetch_one(&mut connection).await.map_err(error)?;
        Err(elsewhere(finished.map(|Moment(at)| at)))
    }

    async fn pid(&mut self) -> Result<i32> {
        sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut self.0).await.map_err(error)
    }

    /// Gives the lock back before it returns. The server notices a connection that is dropped only later, and refuses who comes next.
    pub async fn end(mut self) {
        run(&mut self.0, "rollback").await.ok();
    }

    async fn finish(mut self) -> Result<()> {
        let now = clock(&mut self.0).await?;
        let finished = sqlx::query("update zone_upkeep_lock set finished_at = $1").bind(now);
        finished.execute(&mut self.0).await.map_err(error)?;
        run(&mut self.0, "commit").await
    }
}

/// From now on who finds no row of a bucket in the zone looks at the ledger. Committed before the first one goes.
pub(super) async fn heads_go(connection: &mut PgConnection, zone_id: i32) -> Result<()> {
    let go = "insert into zone_bucket_removed (zone_id, removed_at) values ($1, pg_catalog.clock_timestamp())
        on conflict do nothing";
    sqlx::query(go).bind(zone_id).execute(connection).await.map_err(error).map(drop)
}

pub(super) async fn run(connection: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map_err(error).map(drop)
}

/// Runs statements that take a lock for which all others would wait, until they get it, in one transaction. One after the
/// other, since Citus hands each text on as it comes.
async fn step(connection: &mut PgConnection, statements: &[String]) -> Result<()> {
    run(connection, LOCK_WAIT).await?;
    let mut tries = Tries::new(TRIES, Instant::now() + Duration::from_secs(120));
    loop {
        match run_together(connection, statements).await {
            Err(failed) if tries.again(&failed).await => {}
            result => return result,
        }
    }
}

async fn run_together(connection: &mut PgConnection, statements: &[String]) -> Result<()> {
    let mut tx = connection.begin().await.map_err(error)?;
    for statement in statements {
        run(&mut tx, statement).await?;
    }
    tx.commit().await.map_err(error)
}

async fn partitions(connection: &mut PgConnection) -> Result<Vec<Found>> {
    let rows =
        sqlx::query(include_str!("upkeep/partitions.sql")).fetch_all(connection).await.map_err(error)?;
    let found = rows.iter().map(|row| {
        let partition = Partition { name: get!(row, "name"), to: time_if(row, "to_at")? };
        let (unfinished, guarded) = (get!(row, "unfinished"), get!(row, "guarded"));
        Ok(Found { partition, from: time_if(row, "from_at")?, unfinished, guarded })
    });
    found.collect()
}

/// Ends what an earlier run began and did not end.
async fn finish(connection: &mut PgConnection, plan: &Plan, done: &mut Maintained) -> Result<()> {
    for found in partitions(connection).await?.into_iter().filter(|found| found.unfinished) {
        if !plan.dry_run {
            run(connection, LONG_WAIT).await?;
            run(
                connection,
                &format!("alter table zone_txn detach partition {} finalize", found.partition.name),
            )
            .await?;
        }
    }
    let leftovers: Vec<String> = sqlx::query_scalar(include_str!("upkeep/leftovers.sql"))
        .fetch_all(&mut *connection)
        .await
        .map_err(error)?;
    for name in leftovers {
        if !plan.dry_run {
            run(connection, &format!("drop table {name}")).await?;
        }
        done.partitions_dropped.push(name);
    }
    Ok(())
}

/// Splits the last partition, which has no end. While it is empty, a month at a time; one that has rows becomes one
/// partition up to the end of what is ahead, and of the month of its newest row.
async fn ahead(
    connection: &mut PgConnection,
    plan: &Plan,
    alone: &mut Alone,
    done: &mut Maintained,
) -> Result<()> {
    let Some(last) = partitions(connection).await?.into_iter().find(|found| found.partition.to.is_none())
    else {
        return Err(Error::database("zone_txn has no partition without an end; see docs/operations.md"));
    };
    let name = last.partition.name;
    if last.guarded && !plan.dry_run {
        let unguard = [
            format!("alter table {name} drop constraint zone_txn_bounds_ck"),
            "drop function if exists zone_txn_is_guarded()".to_owned(),
        ];
        step(connection, &unguard).await?;
    }
    let Some(mut from) = last.from.filter(|from| *from < plan.ahead_until) else { return Ok(()) };
    let newest = format!("select max(t.created_at) as newest from {name} t");
    let newest = sqlx::query(AssertSqlSafe(newest)).fetch_one(&mut *connection).await.map_err(error)?;
    let Some(newest) = time_if(&newest, "newest")? else {
        for (month, to) in months(from, plan.ahead_until) {
            if !plan.dry_run {
                let split = [
                    "lock table zone_txn in access exclusive mode".to_owned(),
                    format!("alter table zone_txn detach partition {name}"),
                    format!(
                        "create table {month} partition of zone_txn for values from ('{from}') to ('{to}')"
                    ),
                    format!(
                        "alter table zone_txn attach partition {name} for values from ('{to}') to (maxvalue)"
                    ),
                ];
                step(connection, &split).await?;
            }
            done.partitions_made.push(month);
            from = to;
        }
        return Ok(());
    };
    let to = next_month(plan.ahead_until.max(newest))
        .ok_or_else(|| Error::invalid("there is no month after that"))?;
    let month = from.format("zone_txn_%Y_%m").to_string();
    if !plan.dry_run {
        close(connection, alone, &name, &month, from, to).await?;
    }
    done.partitions_made.push(month);
    Ok(())
}

/// Gives the last partition, which has rows, a name and an end, and makes a new one behind it.
///
/// PostgreSQL reads all rows under the lock to see that they are within the bounds, unless a constraint proves it. The
/// constraint is proven beforehand, while others go on writing. It has to be committed for that, so it stays when the run
/// is killed, and would then refuse every row once its end has come. So it holds only while the session lives that has
/// upkeep to itself. The transaction that drops it sees that this session lives, and puts a constant in the place of the
/// question, since PostgreSQL takes nothing else for a proof.
async fn close(
    connection: &mut PgConnection,
    alone: &mut Alone,
    name: &str,
    month: &str,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<()> {
    let mut split = vec!["lock table zone_txn in access exclusive mode".to_owned()];
    // Nodes of Citus do not see the session, which is at the coordinator. There the rows are read under the lock.
    let is_guarded = !is_distributed(connection).await?;
    if is_guarded {
        let pid = alone.pid().await?;
        let is_guarded = "create or replace function zone_txn_is_guarded() returns boolean language sql";
        let guard = [
            format!(
                "{is_guarded} volatile return exists (
                    select
                    from pg_catalog.pg_locks l
                    where l.pid = {pid}
                        and l.relation = 'zone_upkeep_lock'::regclass
                        and l.mode = 'ShareUpdateExclusiveLock'
                        and l.granted
                )"
            ),
            format!(
                "alter table {name} add constraint zone_txn_bounds_ck
                check (created_at >= '{from}' and (created_at < '{to}' or not zone_txn_is_guarded())) not valid"
            ),
        ];
        step(connection, &guard).await?;
        run(connection, &format!("alter table {name} validate constraint zone_txn_bounds_ck")).await?;
        split.push(
            "do $$ begin
                if not zone_txn_is_guarded() then
                    raise 'the session that has upkeep to itself was ended; run maintain again';
                end if;
            end $$"
                .to_owned(),
        );
        split.push(format!("{is_guarded} immutable return true"));
    }
    split.extend([
        format!("alter table zone_txn detach partition {name}"),
        format!("alter table {name} rename to {month}"),
        format!("alter table zone_txn attach partition {month} for values from ('{from}') to ('{to}')"),
        format!("create table {name} partition of zone_txn for values from ('{to}') to (maxvalue)"),
    ]);
    if is_guarded {
        split.push(format!("alter table {month} drop constraint zone_txn_bounds_ck"));
        split.push("drop function zone_txn_is_guarded()".to_owned());
    }
    step(connection, &split).await
}

/// Removes what is old, of the ledger and of buckets.
async fn remove(connection: &mut PgConnection, plan: &Plan, done: &mut Maintained) -> Result<()> {
    finish(connection, plan, done).await?;
    if let Some(from) = plan.keep_from {
        drop_before(connection, plan, from, done).await?;
    }
    for zone in &plan.zones {
        if !plan.dry_run {
            done.holds_removed += remove_holds(connection, zone).await?;
        }
        if let Some(since) = plan.idle_since {
            done.heads_removed += remove_heads(connection, plan, zone, since).await?;
        }
    }
    Ok(())
}

/// Removes the partitions that end before a time. First they leave behind what is needed of them.
async fn drop_before(
    connection: &mut PgConnection,
    plan: &Plan,
    from: DateTime<Utc>,
    done: &mut Maintained,
) -> Result<()> {
    let old: Vec<_> = partitions(connection)
        .await?
        .into_iter()
        .filter_map(|found| Some((found.partition.name, found.partition.to?)).filter(|(_, to)| *to <= from))
        .collect();
    let Some(&(_, until)) = old.last() else { return Ok(()) };
    if !plan.dry_run {
        announce(connection, until).await?;
        record(connection, until).await?;
    }
    // Citus does not detach concurrently.
    let is_distributed = is_distributed(connection).await?;
    for (name, _) in old {
        if !plan.dry_run {
            run(connection, LONG_WAIT).await?;
            run(connection, &format!("comment on table {name} is 'Taken from zone_txn to be dropped.'"))
                .await?;
            if is_distributed {
                step(connection, &[format!("alter table zone_txn detach partition {name}")]).await?;
            } else {
                run(connection, &format!("alter table zone_txn detach partition {name} concurrently"))
                    .await?;
            }
            run(connection, &format!("drop table {name}")).await?;
        }
        done.partitions_dropped.push(name);
    }
    Ok(())
}

/// Records what is to go, before the first of it does. The removals of a run that was cut off are recorded: they are
/// finished first, so that nothing is recorded twice.
async fn announce(connection: &mut PgConnection, until: DateTime<Utc>) -> Result<()> {
    let before = sqlx::query_scalar("select max(r.cut_at) from zone_removal r");
    let before: Option<Moment> = before.fetch_one(&mut *connection).await.map_err(error)?;
    if let Some(Moment(before)) = before {
        record(connection, before).await?;
    }
    let (mut going, mut zone_id, mut key) = (Going::default(), i32::MIN, String::new());
    loop {
        let page = sqlx::query(include_str!("upkeep/drop_count.sql"))
            .bind(zone_id)
            .bind(&key)
            .bind(until)
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
    let mut tx = connection.begin().await.map_err(error)?;
    for (zone_id, removing) in going.removing(until) {
        removal::record(&mut tx, zone_id, removing).await?;
    }
    tx.commit().await.map_err(error)
}

async fn record(connection: &mut PgConnection, until: DateTime<Utc>) -> Result<()> {
    let (mut zone_id, mut key) = (i32::MIN, String::new());
    loop {
        let last = sqlx::query_as(include_str!("upkeep/drop_until.sql"))
            .bind(zone_id)
            .bind(&key)
            .bind(until)
            .fetch_optional(&mut *connection)
            .await
            .map_err(error)?;
        let Some((last_zone_id, last_key)): Option<(i32, String)> = last else { return Ok(()) };
        sqlx::query(include_str!("upkeep/drop_record.sql"))
            .bind(zone_id)
            .bind(&key)
            .bind(until)
            .bind(last_zone_id)
            .bind(&last_key)
            .execute(&mut *connection)
            .await
            .map_err(error)?;
        (zone_id, key) = (last_zone_id, last_key);
    }
}

async fn remove_holds(connection: &mut PgConnection, zone: &Needed) -> Result<u64> {
    let (mut removed, mut after) = (0, String::new());
    loop {
        let mut tx = connection.begin().await.map_err(error)?;
        let keys: Vec<String> = sqlx::query_scalar(include_str!("upkeep/holding.sql"))
            .bind(zone.zone_id)
            .bind(&after)
            .fetch_all(&mut *tx)
            .await
            .map_err(error)?;
        let Some(last) = keys.last() else { return Ok(removed) };
        after.clone_from(last);
        let keys = free(&mut tx, zone.zone_id, keys).await?;
        removed += sqlx::query(include_str!("upkeep/holds_remove.sql"))
            .bind(zone.zone_id)
            .bind(&keys)
            .bind(zone.since)
            .execute(&mut *tx)
            .await
            .map_err(error)?
            .rows_affected();
        sqlx::query(include_str!("upkeep/holding_reset.sql"))
            .bind(zone.zone_id)
            .bind(&keys)
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        tx.commit().await.map_err(error)?;
    }
}

/// Locks those of the buckets that nobody else holds.
async fn free(connection: &mut PgConnection, zone_id: i32, keys: Vec<String>) -> Result<Vec<String>> {
    let mut free = Vec::new();
    for key in keys {
        let lock = sqlx::query_scalar(include_str!("upkeep/free.sql")).bind(zone_id).bind(key);
        free.extend(lock.fetch_optional(&mut *connection).await.map_err(error)?);
    }
    Ok(free)
}

async fn remove_heads(
    connection: &mut PgConnection,
    plan: &Plan,
    zone: &Needed,
    since: DateTime<Utc>,
) -> Result<u64> {
    let idle: i64 = sqlx::query_scalar(include_str!("upkeep/heads_idle.sql"))
        .bind(zone.zone_id)
        .bind(since)
        .fetch_one(&mut *connection)
        .await
        .map_err(error)?;
    if plan.dry_run || idle == 0 {
        return Ok(idle.unsigned_abs());
    }
    heads_go(connection, zone.zone_id).await?;
    let (mut removed, mut after) = (0, String::new());
    loop {
        let mut tx = connection.begin().await.map_err(error)?;
        let keys: Vec<String> = sqlx::query_scalar(include_str!("upkeep/heads_quiet.sql"))
            .bind(zone.zone_id)
            .bind(&after)
            .bind(since)
            .fetch_all(&mut *tx)
            .await
            .map_err(error)?;
        let Some(last) = keys.last() else { return Ok(removed) };
        after.clone_from(last);
        let keys = free(&mut tx, zone.zone_id, keys).await?;
        removed += sqlx::query(include_str!("upkeep/heads_remove.sql"))
            .bind(zone.zone_id)
            .bind(&keys)
            .bind(since)
            .execute(&mut *tx)
            .await
            .map_err(error)?
            .rows_affected();
        tx.commit().await.map_err(error)?;
    }
}
