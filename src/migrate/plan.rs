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
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql");
const MYSQL: &[(&str, &str)] = files!("migrations/mysql":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql");
const SQLITE: &[(&str, &str)] = files!("migrations/sqlite":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql");

const ROUTINES: &[&[(&str, &str)]] = &[
    files!("sql/postgres":
        "check_velocity.sql" "rate_limiting_request.sql" "tallygate_schema_version.sql" "zone_answer.sql"
        "zone_ask_validate.sql" "zone_bring.sql" "zone_brought.sql" "zone_bucket_hash.sql"
        "zone_bucket_hold.sql" "zone_bucket_open.sql" "zone_bucket_take.sql" "zone_charges.sql"
        "zone_check.sql" "zone_check_all.sql" "zone_check_held.sql" "zone_check_many.sql"
        "zone_check_validate.sql" "zone_clamp.sql" "zone_convert.sql" "zone_decide.sql"
        "zone_decide_held.sql" "zone_decide_level.sql" "zone_decide_window.sql" "zone_decision.sql"
        "zone_error.sql" "zone_family.sql" "zone_find.sql" "zone_happen.sql" "zone_head_new.sql"
        "zone_head_set.sql" "zone_level_capacity.sql" "zone_level_clamp.sql" "zone_level_give.sql"
        "zone_level_wait.sql" "zone_limit.sql" "zone_mark.sql" "zone_override_add.sql" "zone_past.sql"
        "zone_policy.sql" "zone_record.sql" "zone_recorded.sql" "zone_recorded_past.sql" "zone_share.sql"
        "zone_share_up.sql" "zone_strike.sql" "zone_time.sql" "zone_txn_bytes.sql" "zone_txn_id_make.sql"
        "zone_txn_tail.sql" "zone_unchecked.sql" "zone_undo.sql" "zone_us.sql" "zone_verdict.sql"
        "zone_version_hash.sql" "zone_version_now.sql" "zone_version_of.sql" "zone_window.sql"
        "zone_window_before.sql" "zone_window_ended.sql" "zone_window_frame.sql" "zone_window_left.sql"
        "zone_window_make.sql" "zone_window_period.sql" "zone_window_reached.sql" "zone_window_slot.sql"
        "zone_window_total.sql" "zone_window_used.sql" "zone_window_wait.sql"),
    files!("sql/mysql":
        "check_velocity.sql" "rate_limiting_request.sql" "tallygate_schema_version.sql" "zone_answer.sql"
        "zone_batch_each.sql" "zone_batch_hold.sql" "zone_batch_level.sql" "zone_batch_lock.sql"
        "zone_batch_open.sql" "zone_batch_read.sql" "zone_batch_refuse.sql" "zone_batch_replay.sql"
        "zone_bring.sql" "zone_bucket_back.sql" "zone_bucket_hold.sql" "zone_bucket_open.sql"
        "zone_calendar_period.sql" "zone_charges.sql" "zone_check.sql" "zone_check_all.sql"
        "zone_check_all_own.sql" "zone_check_many.sql" "zone_check_many_own.sql" "zone_check_own.sql"
        "zone_clock.sql" "zone_convert.sql" "zone_decide.sql" "zone_decide_all.sql" "zone_decide_each.sql"
        "zone_decide_many.sql" "zone_error.sql" "zone_find.sql" "zone_happen.sql" "zone_head_back.sql"
        "zone_level_wait.sql" "zone_mark.sql" "zone_mark_own.sql" "zone_policy.sql" "zone_record.sql"
        "zone_strikes_before.sql" "zone_token_bucket_make.sql" "zone_transaction_require.sql"
        "zone_txn_find.sql" "zone_txn_hash.sql" "zone_txn_id_make.sql" "zone_unchecked.sql"
        "zone_unchecked_own.sql" "zone_undo.sql" "zone_undo_own.sql" "zone_window.sql"
        "zone_window_before.sql" "zone_window_reached.sql"),
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
        Some(path) => format!("{}{}", routine(path), revoked(path)),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// PostgreSQL lets everybody execute a function unless that is taken back: see `grant`.
fn revoked(path: &str) -> String {
    match path.strip_prefix("sql/postgres/").and_then(|file| file.strip_suffix(".sql")) {
        Some(name) if routine(path).contains("\ncreate function ") => {
            format!("revoke all on function {name} from public;\n")
        }
        _ => String::new(),
    }
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
