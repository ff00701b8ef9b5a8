//! The migrations, as files hold them.

use refinery_core::Migration;

use crate::store::Engine;

/// Where refinery records what it applied; a name of our own, since the caller's service may use refinery
/// in the same database.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) const HISTORY: &str = "tallygate_schema_history";

/// What introduces the file of a routine in a migration.
const INSTALL: &str = "-- install ";

macro_rules! files {
    ($folder:literal: $($file:literal)*) => {
        &[$((concat!($folder, "/", $file), include_str!(concat!("../../", $folder, "/", $file)))),*]
    };
}

const POSTGRES: &[(&str, &str)] = files!("migrations/postgres":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql");
const MYSQL: &[(&str, &str)] = files!("migrations/mysql":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql");
const SQLITE: &[(&str, &str)] = files!("migrations/sqlite":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql");

const ROUTINES: &[&[(&str, &str)]] = &[
    files!("sql/postgres":
        "check_velocity.sql" "rate_limiting_request.sql" "tallygate_schema_version.sql" "zone_bucket_hold.sql"
        "zone_bucket_open.sql" "zone_check.sql" "zone_check_many.sql" "zone_decision.sql" "zone_error.sql"
        "zone_find.sql" "zone_level_carry.sql" "zone_txn_id_make.sql"),
    files!("sql/mysql":
        "check_velocity.sql" "rate_limiting_request.sql" "tallygate_schema_version.sql" "zone_batch_level.sql"
        "zone_batch_lock.sql" "zone_batch_open.sql" "zone_batch_read.sql" "zone_batch_refuse.sql"
        "zone_batch_replay.sql" "zone_bucket_open.sql" "zone_check.sql" "zone_check_many.sql"
        "zone_check_many_own.sql" "zone_check_own.sql" "zone_decide.sql" "zone_decide_each.sql"
        "zone_decide_many.sql" "zone_find.sql" "zone_level_carry.sql" "zone_token_bucket_make.sql"
        "zone_transaction_require.sql"),
];

/// The migrations of an engine, in order, with the text of routines put where they are installed.
pub(super) fn plan(engine: Engine) -> Vec<Migration> {
    let files = match engine {
        Engine::Postgres => POSTGRES,
        Engine::MySql => MYSQL,
        Engine::Sqlite => SQLITE,
    };
    files
        .iter()
        .filter_map(|(path, text)| {
            let name = path.rsplit('/').next()?.strip_suffix(".sql")?;
            Migration::unapplied(name, &install(text)).ok()
        })
        .collect()
}

/// The number of the last migration, the same on every engine.
pub(crate) fn latest() -> i32 {
    SQLITE.len() as i32
}

fn install(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix(INSTALL) {
        Some(path) => routine(path).to_owned(),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn routine(path: &str) -> &'static str {
    ROUTINES.iter().copied().flatten().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_the_same_numbers_and_names() {
        let names =
            |engine| plan(engine).iter().map(|m| (m.version(), m.name().to_owned())).collect::<Vec<_>>();
        assert_eq!(names(Engine::Postgres), names(Engine::MySql));
        assert_eq!(names(Engine::Postgres), names(Engine::Sqlite));
        assert_eq!(names(Engine::Sqlite).last().map(|last| last.0), Some(latest()));
    }

    #[test]
    fn every_routine_is_installed_by_a_migration_and_every_installed_file_exists() {
        let folders = ["migrations/postgres", "migrations/mysql"];
        for ((folder, files), routines) in folders.into_iter().zip([POSTGRES, MYSQL]).zip(ROUTINES) {
            let mut installed: Vec<_> = files
                .iter()
                .flat_map(|(_, text)| text.lines())
                .filter_map(|line| line.strip_prefix(INSTALL))
                .collect();
            installed.sort_unstable();
            assert_eq!(installed, routines.iter().map(|(path, _)| *path).collect::<Vec<_>>(), "{folder}");
        }
    }
}
