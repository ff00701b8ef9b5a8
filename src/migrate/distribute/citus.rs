//! Citus, by its functions. Each step is done where it was not yet, so that a run that was cut off is gone on with.

use sqlx::PgConnection;

use crate::error::{Error, Result};
use crate::migrate::adapter::{postgres::begin, soon};
use crate::migrate::grant::postgres::repeat;
use crate::store::Address;
use crate::store::postgres::{connect, error};

/// On every node, whole: what is read with every bucket, and what is read through a worker, too.
const EVERYWHERE: [&str; 9] = [
    "zone_master",
    "zone_version",
    "zone_calendar",
    "zone_bucket_removed",
    "zone_upkeep_lock",
    "zone_removal",
    "tallygate_grant",
    "tallygate_schema_history",
    "tallygate_shard",
];

/// By the bucket's key. The first is what the others are kept with.
const BY_BUCKET: [&str; 7] = [
    "zone_bucket_lock",
    "zone_hold",
    "zone_queue",
    "zone_item",
    "zone_override",
    "zone_txn",
    "zone_txn_dropped",
];

/// Routines about one bucket, which run on its node. Those that take the zone by its name call these.
const DELEGATED: [&str; 4] = ["check_velocity", "zone_check", "zone_refund", "zone_engine_check"];

/// Citus would put another table in the place of one whose key points at a table that is not distributed yet, and routines
/// would go on with the old one.
const KEYS_DROP: [&str; 2] = [
    "alter table zone_calendar drop constraint if exists zone_calendar_version_fk",
    "alter table zone_version drop constraint if exists zone_version_zone_fk",
];

const KEYS_ADD: [&str; 2] = [
    "alter table zone_version add constraint zone_version_zone_fk foreign key (zone_id) references zone_master (id)",
    "alter table zone_calendar add constraint zone_calendar_version_fk foreign key (zone_id, version)
        references zone_version (zone_id, version)",
];

/// A table of one kind or the other, or a routine.
type Step = (String, String);

pub async fn distribute(address: &Address) -> Result<Vec<String>> {
    let mut connection = connect(address, soon()).await?;
    require_extension(&mut connection).await?;
    let mut tx = begin(&mut connection).await?;
    let mut done = Vec::new();
    let tables: Vec<_> = left(&mut tx).await?.into_iter().filter(|(step, _)| is_of_tables(step)).collect();
    if !tables.is_empty() {
        run(&mut tx, "select set_config('citus.multi_shard_modify_mode', 'sequential', true)").await?;
        for key in KEYS_DROP {
            run(&mut tx, key).await?;
        }
        for step in &tables {
            take(&mut tx, step).await?;
        }
        for key in KEYS_ADD {
            run(&mut tx, key).await?;
        }
    }
    tx.commit().await.map_err(error)?;
    for (_, table) in tables {
        // The moved rows still lie in the coordinator's own table, where nobody sees them.
        sqlx::query("select truncate_local_data_after_distributing_table($1::text::regclass)")
            .bind(&table)
            .execute(&mut connection)
            .await
            .map_err(error)?;
        done.push(table);
    }
    // Routines go to the workers by other connections than tables: those must be committed before.
    let mut tx = begin(&mut connection).await?;
    for step in left(&mut tx).await? {
        take(&mut tx, &step).await?;
        done.push(step.1);
    }
    replan(&mut tx).await?;
    tx.commit().await.map_err(error)?;
    // The rights that were given before were for a schema that is not distributed.
    let mut tx = begin(&mut connection).await?;
    repeat(&mut tx).await?;
    tx.commit().await.map_err(error)?;
    Ok(done)
}

pub async fn undistributed(address: &Address) -> Result<Vec<String>> {
    let mut connection = connect(address, soon()).await?;
    require_extension(&mut connection).await?;
    Ok(left(&mut connection).await?.into_iter().map(|(_, object)| object).collect())
}

/// Lets the routines of a schema that is spread make plans that Citus has.
pub async fn replan(connection: &mut PgConnection) -> Result<()> {
    run(connection, include_str!("replan.sql")).await
}

async fn require_extension(connection: &mut PgConnection) -> Result<()> {
    let asked =
        sqlx::query_scalar("select exists (select from pg_catalog.pg_extension e where e.extname = 'citus')");
    let is_there: bool = asked.fetch_one(connection).await.map_err(error)?;
    if is_there {
        return Ok(());
    }
    Err(Error::invalid(
        "the database has no extension citus; make it on every node with: create extension citus, and add the workers with \
         citus_add_node",
    ))
}

async fn left(connection: &mut PgConnection) -> Result<Vec<Step>> {
    let left = sqlx::query_as(include_str!("left.sql"))
        .bind(&EVERYWHERE[..])
        .bind(&BY_BUCKET[..])
        .bind(&DELEGATED[..]);
    left.fetch_all(connection).await.map_err(error)
}

/// One statement: Citus hands the text on as it comes.
async fn run(connection: &mut PgConnection, statement: &'static str) -> Result<()> {
    sqlx::query(statement).execute(connection).await.map_err(error).map(drop)
}

fn is_of_tables(step: &str) -> bool {
    matches!(step, "reference" | "distribute")
}

async fn take(connection: &mut PgConnection, (step, object): &Step) -> Result<()> {
    let statement = match step.as_str() {
        "reference" => "select create_reference_table($1::text::regclass)",
        "distribute" if object == BY_BUCKET[0] => {
            "select create_distributed_table($1::text::regclass, 'bucket_key', colocate_with => 'none')"
        }
        "distribute" => {
            "select create_distributed_table($1::text::regclass, 'bucket_key', colocate_with => 'zone_bucket_lock')"
        }
        "delegate" => {
            "select create_distributed_function($1::text::regprocedure, 'p_bucket_key', colocate_with => 'zone_bucket_lock')"
        }
        _ => "select create_distributed_function($1::text::regprocedure)",
    };
    sqlx::query(statement).bind(object).execute(connection).await.map_err(error).map(drop)
}
