//! The migrations, as files hold them.

use std::borrow::Cow;
use std::collections::HashMap;

use refinery_core::Migration;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::store::{Engine, Schema};

/// Where refinery records what it applied; a name of our own, since the caller's service may use refinery
/// in the same database.
pub(crate) const HISTORY: &str = "tallygate_schema_history";

/// The table itself, as refinery writes and reads it.
pub(super) const HISTORY_TABLE: &str = "create table if not exists tallygate_schema_history (
    version int primary key, name varchar(255), applied_on varchar(255), checksum varchar(255)
);";

/// The table of a database of tests, with its clock.
const TEST_CLOCK: &str = "tallygate_test_clock";

/// The comment that names the file of a routine in a migration.
const INSTALL: &str = "-- install ";

macro_rules! files {
    ($folder:literal: $($file:literal)*) => {
        &[$((concat!($folder, "/", $file), include_str!(concat!("../../", $folder, "/", $file)))),*]
    };
}

type Files = &'static [(&'static str, &'static str)];

const POSTGRES: Files = files!("migrations/postgres":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql"
    "V6__grants.sql");
const MYSQL: Files = files!("migrations/mysql":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql"
    "V6__grants.sql");
const SQLITE: Files = files!("migrations/sqlite":
    "V1__zone.sql" "V2__bucket.sql" "V3__ledger.sql" "V4__routines.sql" "V5__views.sql"
    "V6__grants.sql");

const ROUTINES_POSTGRES: Files = files!("sql/postgres":
    "check_velocity.sql" "rate_limiting_request.sql" "tallygate_schema_version.sql" "zone_bring.sql"
    "zone_bucket_hash.sql" "zone_bucket_hold.sql" "zone_bucket_home.sql" "zone_bucket_mark.sql" "zone_bucket_open.sql"
    "zone_bucket_place.sql" "zone_bucket_take.sql" "zone_charges.sql" "zone_check.sql" "zone_decide.sql"
    "zone_decision.sql" "zone_engine_append.sql" "zone_engine_append_one.sql" "zone_engine_ask.sql"
    "zone_engine_charges.sql" "zone_engine_check.sql" "zone_engine_head.sql" "zone_engine_held_by.sql"
    "zone_engine_hold.sql" "zone_engine_items.sql" "zone_engine_items_set.sql" "zone_engine_leases.sql"
    "zone_engine_part.sql" "zone_engine_past.sql" "zone_engine_payloads.sql" "zone_engine_queue.sql"
    "zone_engine_row.sql" "zone_engine_shapes.sql" "zone_engine_versions.sql" "zone_error.sql" "zone_find.sql"
    "zone_head_new.sql" "zone_head_set.sql" "zone_level_fill.sql" "zone_level_give.sql" "zone_level_wait.sql"
    "zone_number.sql" "zone_operator_append.sql" "zone_refund.sql" "zone_time.sql" "zone_total_reached.sql"
    "zone_txn_bytes.sql" "zone_txn_id_make.sql" "zone_us.sql" "zone_version_hash.sql" "zone_window_from.sql"
    "zone_window_used.sql" "zone_window_wait.sql");

const ROUTINES_MYSQL: Files = files!("sql/mysql":
    "check_velocity.sql" "check_velocity_in.sql" "rate_limiting_request.sql" "rate_limiting_request_in.sql"
    "tallygate_schema_version.sql" "zone_bring.sql" "zone_bucket_back.sql" "zone_bucket_home.sql"
    "zone_bucket_mark.sql" "zone_bucket_open.sql" "zone_bucket_place.sql" "zone_charge_find.sql"
    "zone_charges.sql" "zone_check.sql" "zone_check_in.sql" "zone_clock.sql" "zone_decide.sql"
    "zone_engine_append.sql" "zone_engine_append_one.sql" "zone_engine_ask.sql" "zone_engine_charges.sql"
    "zone_engine_check.sql" "zone_engine_hold.sql" "zone_engine_hold_one.sql" "zone_engine_items.sql"
    "zone_engine_items_set.sql" "zone_engine_leases.sql" "zone_engine_payloads.sql" "zone_engine_queue.sql"
    "zone_engine_shapes.sql" "zone_engine_versions.sql" "zone_error.sql" "zone_find.sql" "zone_head_back.sql"
    "zone_level_wait.sql" "zone_number.sql" "zone_operator_append.sql" "zone_refund.sql" "zone_refund_in.sql"
    "zone_snapshot_require.sql" "zone_token_bucket_make.sql" "zone_total_reached.sql" "zone_transaction_require.sql"
    "zone_txn_hash.sql" "zone_txn_id_make.sql" "zone_window_used.sql" "zone_window_wait.sql");

/// The plan of one release: its migrations in order, and the routines in force.
///
/// A released migration never changes, but the routines that it names do. So it is checksummed as its file stands, with
/// names in it; and a routine is installed where a migration names it for the last time, after the tables that it was
/// written for. A database that has that migration has the text.
#[derive(Clone)]
pub(crate) struct Plan {
    engine: Engine,
    test_clock: bool,
    migrations: Vec<(Text, Text)>,
    routines: Vec<(Text, Text)>,
}

type Text = Cow<'static, str>;

/// Something that a migration makes and that can be made again without a loss: a routine, or a view.
pub(super) struct Object {
    /// The migration that made it as it is.
    pub version: i32,
    pub name: String,
    /// The comment that each of its routines has. None of what has no text of its own that could be another.
    pub says: Option<Vec<String>>,
    pub sql: String,
}

/// The names of what is in a database, each with the comments of the routines that have it.
pub(super) type There = HashMap<String, Vec<String>>;

/// A part of what a migration runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The routine that it installs; None for the migration's own statements.
    pub routine: Option<String>,
    /// The number of functions or procedures of that name, and the comment that each gets.
    functions: usize,
    says: String,
    pub sql: String,
}

impl Part {
    /// True for what holds nothing but comments, which MySQL and MariaDB take for no statement at all.
    pub fn is_empty(&self) -> bool {
        self.sql.lines().all(|line| line.trim().is_empty() || line.starts_with("--"))
    }
}

impl Plan {
    /// The plan of this program.
    pub fn of(engine: Engine) -> Self {
        let (migrations, routines) = match engine {
            Engine::Postgres => (POSTGRES, ROUTINES_POSTGRES),
            Engine::MySql => (MYSQL, ROUTINES_MYSQL),
            Engine::Sqlite => (SQLITE, &[][..]),
        };
        let texts = |files: Files| files.iter().map(|&(path, text)| (path.into(), text.into())).collect();
        Self { engine, test_clock: false, migrations: texts(migrations), routines: texts(routines) }
    }

    /// That of a database of tests. Its first migration makes a table of one row, and all that reads the server's clock reads that row
    /// before. Its record of its own migrations tells it from another database that somebody gave such a table.
    pub fn with_test_clock(mut self) -> Self {
        let (table, clock) = match self.engine {
            Engine::Postgres => (include_str!("test_clock/postgres.sql"), "pg_catalog.clock_timestamp()"),
            Engine::MySql => (include_str!("test_clock/mysql.sql"), "utc_timestamp(6)"),
            Engine::Sqlite => return self,
        };
        let row_first = format!("coalesce((select test.now_at from {TEST_CLOCK} test), {clock})");
        for (_, text) in self.migrations.iter_mut().chain(&mut self.routines) {
            let read = text.replace(clock, &row_first);
            *text = read.replace("false as test_clock", "true as test_clock").into();
        }
        if let Some((_, first)) = self.migrations.first_mut() {
            first.to_mut().insert_str(0, table);
        }
        self.test_clock = true;
        self
    }

    /// The plan by which a database goes on. One of tests stays one, and none becomes one that holds anything.
    ///
    /// # Errors
    /// Invalid: it was to become one.
    pub fn of_database(&self, schema: Option<&Schema>, there: &There) -> Result<Cow<'_, Self>> {
        let has = |name: &str| there.contains_key(name);
        // A dump may have no routines.
        let was_one =
            |schema: &Schema| schema.test_clock || (has(TEST_CLOCK) && !has("tallygate_schema_version"));
        match (self.test_clock, schema.map_or(!has("zone_master"), was_one)) {
            (true, false) => Err(Error::invalid(
                "the database is migrated already, and only an empty one can become one of tests; make a new one for that",
            )),
            (false, true) if schema.is_some() => Ok(Cow::Owned(self.clone().with_test_clock())),
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    /// That of a later release: with another migration, and these files in place of routines or beside them.
    #[cfg(feature = "testing")]
    pub fn release(&mut self, migration: (String, String), routines: Vec<(String, String)>) {
        self.migrations.push((migration.0.into(), migration.1.into()));
        self.routines.retain(|(path, _)| !routines.iter().any(|(new, _)| new == path));
        self.routines.extend(routines.into_iter().map(|(path, text)| (path.into(), text.into())));
    }

    /// For refinery, which checksums them as their files stand.
    pub fn migrations(&self) -> Vec<Migration> {
        let step = |(path, text): &(Text, Text)| {
            let name = path.rsplit('/').next()?.strip_suffix(".sql")?;
            Migration::unapplied(name, text).ok()
        };
        self.migrations.iter().filter_map(step).collect()
    }

    /// The number of its last migration.
    pub fn latest(&self) -> i32 {
        i32::try_from(self.migrations.len()).unwrap_or(i32::MAX)
    }

    /// True for the text of the last migration.
    pub fn is_last(&self, text: &str) -> bool {
        self.migrations.last().is_some_and(|(_, last)| last == text)
    }

    /// The parts that are run where refinery hands over this text: a migration's with its routines in place, or
    /// what refinery itself records, as it is.
    pub fn parts(&self, text: &str) -> Vec<Part> {
        let own = |sql: &str| Part { routine: None, functions: 0, says: String::new(), sql: sql.to_owned() };
        let Some(at) = self.migrations.iter().position(|(_, own)| own == text) else {
            return vec![own(text)];
        };
        let later = &self.migrations[at + 1..];
        let mut parts = vec![own(text)];
        for path in installs(text) {
            if later.iter().any(|(_, text)| installs(text).any(|again| again == path)) {
                continue;
            }
            // One that is not there has been dropped by a later migration.
            parts.extend(self.routine(path).map(|text| install(path, text)));
        }
        parts
    }

    /// The objects that migrations up to this number have made and that are gone, or are others: of a restored dump that had no
    /// routines, in a schema with another name.
    ///
    /// # Errors
    /// Schema: a table is gone, and what was in it.
    pub fn lacking(&self, version: i32, there: &There) -> Result<Vec<Object>> {
        // Users without a right to a table of ours are shown none on MySQL and MariaDB.
        if !there.contains_key(HISTORY) {
            return Ok(Vec::new());
        }
        for (place, (_, text)) in
            self.migrations.iter().enumerate().take(usize::try_from(version).unwrap_or_default())
        {
            if let Some(table) = tables(text).find(|table| !there.contains_key(*table)) {
                return Err(Error::schema(format!(
                    "the table {table} is gone, which migration {} has made; restore it from a backup, with what was in it",
                    place + 1
                )));
            }
        }
        let is_lacking = |object: &Object| match (there.get(&object.name), &object.says) {
            (None, _) => true,
            (Some(says), Some(own)) => says != own,
            (Some(_), None) => false,
        };
        Ok(self
            .objects()
            .into_iter()
            .filter(|object| object.version <= version && is_lacking(object))
            .collect())
    }

    /// All that can be made again, each as the last migration makes it that names it.
    fn objects(&self) -> Vec<Object> {
        let mut objects: Vec<Object> = Vec::new();
        for ((_, text), version) in self.migrations.iter().zip(1..) {
            for part in self.parts(text) {
                if let Some(name) = part.routine {
                    let says = (part.functions > 0).then(|| vec![part.says; part.functions]);
                    objects.push(Object { version, name, says, sql: part.sql });
                }
            }
            for (name, sql) in views(text) {
                objects.retain(|object| object.name != name);
                objects.push(Object { version, name: name.to_owned(), says: None, sql: sql.to_owned() });
            }
        }
        objects
    }

    fn routine(&self, path: &str) -> Option<&str> {
        self.routines.iter().find(|(name, _)| name == path).map(|(_, text)| &**text)
    }
}

/// The number of this program's last migration, the same on every engine.
pub(crate) fn latest() -> i32 {
    SQLITE.len() as i32
}

/// The files that a migration names.
fn installs(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix(INSTALL))
}

/// The tables that a migration makes.
fn tables(text: &str) -> impl Iterator<Item = &str> {
    let tables = text.lines().filter_map(|line| line.strip_prefix("create table "));
    tables.filter_map(|table| table.trim_start_matches("if not exists ").split(' ').next())
}

/// The views that a migration makes, each with the paragraph that does it.
fn views(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n\n").filter_map(|paragraph| {
        let (_, view) = paragraph.split_once("create or replace ")?;
        let (head, _) = view.split_once(" as\n")?;
        Some((head.rsplit(' ').next()?, paragraph))
    })
}

/// The text of a routine, so that one which is there already is replaced.
///
/// On PostgreSQL and MariaDB its callers notice nothing and it keeps its rights. On MySQL it is dropped first: for that
/// moment it is not there, and then its rights are not. PostgreSQL lets everybody execute a function unless that is taken
/// back: see `grant`. It has no way to replace a type, so one never changes.
fn install(path: &str, text: &str) -> Part {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sql");
    let (function, drop, create) = (
        "\ncreate function ",
        format!("drop procedure if exists {name};"),
        format!("create procedure {name}("),
    );
    // By the hash it is seen whether what is there has this text.
    let hash: String = Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let comment = format!("{} ({hash})", purpose(name, text));
    let says = comment.replace('\'', "''");
    let functions = text.matches(function).count() + text.matches(&create).count();
    let sql = if text.contains(function) {
        let text = text.replace(function, "\ncreate or replace function ");
        format!("{text}{}", include_str!("secure.sql").replace("{name}", name).replace("{says}", &says))
    } else if text.contains(&format!("\ncreate type {name} ")) {
        format!("{text}comment on type {name} is '{says}';\n")
    } else {
        // Comments that only the one server, or only the other, reads as SQL.
        text.replacen(&drop, &format!("/*!80000 drop procedure if exists {name} */ /*M! do 0 */;"), 1)
            .replacen(&create, &format!("create /*M! or replace */ procedure {name}("), 1)
            .replacen("\nsql security definer\n", &format!("\ncomment '{says}'\nsql security definer\n"), 1)
    };
    Part { routine: Some(name.to_owned()), functions, says: comment, sql }
}

/// The purpose of a routine: the first lines of its file, which the database tells as its comment.
fn purpose(name: &str, text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("-- "));
    let says = lines.collect::<Vec<_>>().join(" ");
    says.strip_prefix(&format!("{name}: ")).unwrap_or(&says).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn every_engine_has_the_same_numbers_and_names() {
        let names = |engine| {
            let migrations = Plan::of(engine).migrations();
            migrations.iter().map(|m| (m.version(), m.name().to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(names(Engine::Postgres), names(Engine::MySql));
        assert_eq!(names(Engine::Postgres), names(Engine::Sqlite));
        assert_eq!(names(Engine::Sqlite).last().map(|last| last.0), Some(latest()));
    }

    #[test]
    fn every_routine_is_named_by_a_migration_and_what_is_named_is_there_or_dropped() {
        for (files, routines) in [(POSTGRES, ROUTINES_POSTGRES), (MYSQL, ROUTINES_MYSQL)] {
            let named: BTreeSet<_> = files.iter().flat_map(|(_, text)| installs(text)).collect();
            let there: BTreeSet<_> = routines.iter().map(|(path, _)| *path).collect();
            assert!(there.is_subset(&named), "no migration installs {:?}", &there - &named);
            for path in &named - &there {
                let name = path.rsplit('/').next().unwrap().trim_end_matches(".sql");
                let is_dropped = |(_, text): &(_, &str)| text.contains(&format!(" if exists {name};"));
                assert!(files.iter().any(is_dropped), "{path} is not there, and no migration drops {name}");
            }
        }
    }

    #[test]
    fn a_routine_is_installed_where_it_is_named_for_the_last_time() {
        let text = |text: &'static str| Cow::from(text);
        let routine = "-- a: b.\ncreate function a()\nx";
        let plan = Plan {
            engine: Engine::Postgres,
            test_clock: false,
            migrations: vec![
                (text("V1__a.sql"), text("create table x;\n-- install sql/a.sql\n-- install sql/b.sql\n")),
                (text("V2__b.sql"), text("-- install sql/a.sql\n")),
            ],
            routines: vec![(text("sql/a.sql"), text(routine))],
        };
        let names = |sql: &str| plan.parts(sql).into_iter().map(|part| part.routine).collect::<Vec<_>>();
        assert_eq!(names(&plan.migrations[0].1), [None], "a again in 2, and b is no more");
        assert_eq!(names(&plan.migrations[1].1), [None, Some("a".to_owned())]);
        assert_eq!(names("insert"), [None]);
        // The checksum is that of the names.
        let mut other = plan.clone();
        other.routines[0].1 = text("another text");
        assert!(plan.migrations().iter().zip(other.migrations()).all(|(a, b)| a.checksum() == b.checksum()));
    }

    #[test]
    fn all_that_reads_the_clock_reads_that_of_tests_first() {
        let clocks = ["_timestamp", " now(", "sysdate", "curdate", "curtime", "localtime"];
        for engine in [Engine::Postgres, Engine::MySql] {
            let plan = Plan::of(engine).with_test_clock();
            let views = plan.migrations.iter().flat_map(|(_, text)| views(text));
            let routines = plan.routines.iter().map(|(path, text)| (&**path, &**text));
            let mut readers = 0;
            for (name, text) in views.chain(routines) {
                let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
                let mut code = code.collect::<Vec<_>>().join("\n");
                for clock in ["pg_catalog.clock_timestamp()", "utc_timestamp(6)"] {
                    let first = format!("coalesce((select test.now_at from {TEST_CLOCK} test), {clock})");
                    readers += code.matches(&first).count();
                    code = code.replace(&first, "");
                }
                let alone = clocks.iter().find(|clock| code.contains(**clock));
                assert_eq!(alone, None, "{name} of {engine:?} reads the clock of the server alone");
            }
            assert!(readers >= 3, "only {readers} were found: the reading is at fault");
            let told = plan.routines.iter().filter(|(_, text)| text.contains("true as test_clock")).count();
            assert_eq!(told, 1, "{engine:?} tells what it is");
        }
    }

    #[test]
    fn every_routine_replaces_the_one_before_it() {
        for (path, text) in ROUTINES_POSTGRES {
            let sql = install(path, text).sql;
            let is_type = text.contains("\ncreate type ");
            assert!(is_type || sql.contains("\ncreate or replace function "), "{path}");
            assert!(is_type || sql.contains("revoke all on function "), "{path}");
        }
        for (path, text) in ROUTINES_MYSQL {
            let sql = install(path, text).sql;
            assert!(sql.contains("\n/*!80000 drop procedure if exists "), "{path}");
            assert!(sql.contains("\ncreate /*M! or replace */ procedure "), "{path}");
            assert!(sql.contains("\ncomment '"), "{path}");
        }
    }

    /// `migrations/released.sha256`, as `sha256sum` writes it: more is appended by each release, and nothing changed.
    fn released() -> Vec<(&'static str, &'static str)> {
        let lines = include_str!("../../migrations/released.sha256").lines();
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once("  ")).collect()
    }

    /// The names of these files that break what was released. Of a migration every hash holds; of a routine the last
    /// one is that of the last release, and another text must be named by a migration that is not released yet.
    fn broken(files: &[(&str, &str)], released: &[(&str, &str)]) -> Vec<String> {
        let hash =
            |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        let is_released = |path: &str| released.iter().any(|(_, released)| *released == path);
        let renewed: BTreeSet<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with("migrations/") && !is_released(path))
            .flat_map(|(_, text)| installs(text))
            .collect();
        let mut broken = Vec::new();
        for (pin, path) in released.iter().filter(|(_, path)| path.starts_with("migrations/")) {
            if files.get(path).is_none_or(|text| hash(text) != *pin) {
                broken.push(format!(
                    "{path} is released and has changed; put it back, and add another migration"
                ));
            }
        }
        for (path, text) in files.iter().filter(|(path, _)| path.starts_with("sql/")) {
            let pin = released.iter().rev().find(|(_, released)| released == path).map(|(pin, _)| *pin);
            if !released.is_empty() && pin != Some(&*hash(text)) && !renewed.contains(path) {
                broken.push(format!(
                    "{path} has changed since the last release; install it by a new migration"
                ));
            }
        }
        broken
    }

    fn files() -> Vec<(&'static str, &'static str)> {
        [POSTGRES, MYSQL, SQLITE, ROUTINES_POSTGRES, ROUTINES_MYSQL].concat()
    }

    #[test]
    fn what_was_released_is_as_it_was() {
        let broken = broken(&files(), &released());
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        // A release that is about to be made is pinned.
        if !env!("CARGO_PKG_VERSION").ends_with("-dev") {
            let pinned: BTreeSet<_> = released().into_iter().map(|(_, path)| path).collect();
            let missing: Vec<_> = files().into_iter().filter(|(path, _)| !pinned.contains(path)).collect();
            assert!(missing.is_empty(), "pin the release first, see docs/development.md");
        }
    }

    #[test]
    fn a_change_of_what_was_released_is_found() {
        let one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"; // of the text "1"
        let pins = [(one, "migrations/mysql/V1__a.sql"), (one, "sql/mysql/a.sql")];
        let found = |files: &[(&str, &str)]| broken(files, &pins).len();
        let (first, routine) = (("migrations/mysql/V1__a.sql", "1"), ("sql/mysql/a.sql", "1"));
        let (changed, renewing) =
            (("sql/mysql/a.sql", "2"), ("migrations/mysql/V2__b.sql", "-- install sql/mysql/a.sql\n"));
        assert_eq!(found(&[first, routine]), 0);
        assert_eq!(found(&[("migrations/mysql/V1__a.sql", "2"), routine]), 1);
        assert_eq!(found(&[routine]), 1, "it is gone");
        assert_eq!(found(&[first, changed]), 1);
        assert_eq!(found(&[first, changed, renewing]), 0);
        assert_eq!(found(&[first, routine, ("sql/mysql/b.sql", "1")]), 1, "a new one that nobody installs");
        assert_eq!(broken(&[changed], &[]).len(), 0, "nothing is released");
    }
}
