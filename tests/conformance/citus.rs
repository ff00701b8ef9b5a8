//! Citus: a coordinator and two workers in one container, and a database of a test's own on all three.

use std::collections::HashSet;
use std::env;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tallygate::schema::{Migrator, Role};
use testcontainers::core::WaitFor;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::sync::OnceCell;

use crate::db::Engine;
use crate::server;

const IMAGE: &str = "TALLYGATE_TEST_CITUS_IMAGE";

/// Why a test of PostgreSQL is not run here, and which.
pub const NOT_RUN: [(&str, &[&str]); 15] = [
    (
        "it ends or surrounds a server of its own; tests/clusters/citus ends nodes",
        &[
            "capacity::leases_outlive_a_server_that_is_killed",
            "engine::sixteen_processes_by_both_ways_are_exact_and_nobody_starves",
            "hazards::h03_blocked_checks_leave_no_bloat_and_nothing_in_the_catalogue",
            "kill::a_killed_server_keeps_every_decision_it_gave",
            "kill::a_killed_server_keeps_what_was_durable_and_loses_only_the_last_of_what_was_relaxed",
            "pgbouncer::four_hundred_decisions_through_a_transaction_pool_are_right",
        ],
    ),
    (
        "it calls the shell in the container of the one server",
        &[
            "documented::the_examples_in_python_show_what_they_print",
            "documented::the_examples_show_what_they_print",
            "restored::a_restored_dump_goes_on_where_it_was",
            "restored::the_printed_sql_is_applied_by_the_servers_own_client",
        ],
    ),
    (
        "a check by itself in a plain zone is decided on its node, by nothing that the process has read or remembers",
        &[
            "engine::a_bucket_that_is_fought_over_is_held_from_the_first_look_on",
            "engine::a_bucket_that_is_taken_for_new_is_decided_as_what_it_is",
            "engine::what_a_call_left_goes_with_the_next",
            "engine::what_it_cannot_do_says_what_is_lacking",
        ],
    ),
    (
        "what is read is counted at the node that was asked, and read at another one",
        &[
            "flat::a_batch_reads_no_more_rows_of_large_tables_than_of_small_ones",
            "flat::a_check_reads_no_more_rows_of_a_long_window_than_of_a_short_one",
            "flat::a_wait_among_four_times_as_many_refunds_or_reservations_reads_about_four_times_as_much",
            "flat::an_id_is_looked_for_in_its_bucket_alone",
        ],
    ),
    (
        "the setting by which its owner's session looks at no key stays at the node that was asked",
        &["tracks::an_owner_who_covers_tracks_is_found"],
    ),
    (
        "it looks by a trigger, and Citus takes none",
        &["durability::a_commit_waits_unless_all_that_it_records_is_relaxed_and_it_is_our_own"],
    ),
    ("no statement changes a bucket's key", &["removals::a_bucket_that_was_erased_by_hand_is_found"]),
    (
        "views and defaults are opened where one asks, with the rights of who asks: see docs/operations.md",
        &["rights::who_is_logged_in_is_recorded_beside_who_is_said_to_act"],
    ),
    (
        "so the operator of the tests is an auditor too, see below",
        &[
            "rights::an_operator_reads_all_of_a_bucket_but_its_salt",
            "rights::an_operator_writes_zones_and_marks_and_does_not_see_the_ledger",
            "rights::each_role_does_its_work_and_is_refused_that_of_the_others",
        ],
    ),
    (
        "lock_timeout stays at the node that was asked: a batch waits at the bucket's beyond its deadline, and is decided",
        &[
            "locks::a_held_bucket_delays_no_other_and_its_waiters_end_at_their_deadline",
            "locks::a_held_bucket_delays_no_other_when_serializable",
        ],
    ),
    (
        "partitions are detached, and those with rows split, in one step",
        &[
            "cut::upkeep_that_was_cut_off_anywhere_is_ended_by_the_next",
            "maintain::one_works_at_a_time_and_what_a_killed_run_left_the_next_one_finishes",
            "maintain::rows_of_the_last_partition_are_read_before_it_is_locked",
        ],
    ),
    (
        "a check is a transaction of its bucket's node, whatever the session that asked may do",
        &["sessions::a_pool_that_cannot_decide_says_why"],
    ),
    (
        "each check travels by itself, and none waits for another one to come back",
        &[
            "together::callers_of_one_bucket_are_decided_in_the_order_of_their_coming",
            "together::what_waits_is_bounded",
        ],
    ),
    (
        "under SERIALIZABLE a node reads a small shard whole, so that all new keys conflict: they are decided, but not in time",
        &[
            "exact::a_thousand_serializable_callers_with_new_keys_all_get_an_answer",
            "exact::serializable_callers_with_ids_of_their_own_rarely_meet",
        ],
    ),
    (
        "it is about a database that is not spread",
        &[
            "clock::a_database_of_tests_goes_by_the_clock_that_its_owner_sets",
            "clock::a_database_of_tests_stays_one",
            "clock::a_time_zone_that_calls_itself_utc_changes_nothing",
            "clock::no_other_database_becomes_one_of_tests",
            "rights::an_owner_migrates_an_empty_database_and_gives_the_other_roles",
            "restored::a_schema_with_another_name_goes_on",
            "schema::a_database_that_is_not_in_utf8_is_refused_in_one_sentence",
            "schema::patterns_are_made_as_they_are_written",
            "schema::what_cannot_be_distributed_says_what_it_lacks",
            "verify::a_time_that_cannot_be_read_is_never_verified",
        ],
    ),
];

/// Whether there is the image, which is built from a source tree that not everybody has.
pub fn is_there() -> bool {
    env::var_os(IMAGE).is_some()
}

pub fn is_run(test: &str) -> bool {
    !not_run().any(|listed| test == listed)
}

pub fn not_run() -> impl Iterator<Item = &'static str> {
    NOT_RUN.iter().flat_map(|(_, tests)| *tests).copied()
}

/// Every listed test is there, and would be run.
pub fn what_is_not_run_is_a_test(of_postgres: &HashSet<&str>) {
    for listed in not_run() {
        assert!(of_postgres.contains(listed), "{listed} is no test of PostgreSQL");
    }
}

struct Cluster {
    container: ContainerAsync<GenericImage>,
    /// Of the database `postgres` of each: the coordinator, then the workers.
    nodes: Vec<String>,
}

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// The beginnings of a database. To make one takes much longer than to copy one.
#[derive(Clone, Copy)]
pub enum Template {
    /// With the extension, which knows the workers.
    Empty,
    /// Migrated and spread, with the roles given.
    Spread,
}

impl Template {
    fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Spread => "spread",
        }
    }
}

/// Makes a database, and tells where it is on the coordinator.
pub async fn create(name: &str, template: Template) -> String {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    cluster.copy(template, name).await;
    on(&cluster.nodes[0], name)
}

pub async fn drop(name: String) {
    let cluster = CLUSTER.get().expect("it was made there");
    for node in &cluster.nodes {
        // The rest is gone with the container, which may be going.
        let Ok(mut admin) = PgConnection::connect(node).await else { return };
        let dropped = sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)")));
        dropped.execute(&mut admin).await.ok();
    }
}

pub async fn stop() {
    if let Some(cluster) = CLUSTER.get() {
        server::remove(&cluster.container).await;
    }
}

impl Cluster {
    async fn start() -> Self {
        let name = env::var(IMAGE).unwrap();
        let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, "latest"));
        // A process of Citus's own looks after each database.
        let options = "-c fsync=off -c max_connections=500 -c max_worker_processes=500";
        let request = GenericImage::new(repository, tag)
            .with_wait_for(WaitFor::message_on_stdout("the servers are there"))
            .with_env_var("POSTGRES_PASSWORD", server::PASSWORD)
            .with_env_var("POSTGRES_OPTIONS", options);
        let container = server::labelled(request).start().await.expect("a cluster of Citus");
        let address = server::address(container.id()).await;
        let nodes = (5431..=5433).map(|port| server::url(Engine::Postgres, &format!("{address}:{port}")));
        let cluster = Self { nodes: nodes.collect(), container };
        cluster.make_empty().await;
        cluster.make_spread().await;
        cluster
    }

    async fn make_empty(&self) {
        let name = Template::Empty.name();
        for node in &self.nodes {
            server::make_users(Engine::Postgres, node).await;
            run(node, &format!("create database {name}")).await;
            run(&on(node, name), "create extension citus").await;
        }
        let coordinator = on(&self.nodes[0], name);
        run(&coordinator, "select citus_set_coordinator_host('127.0.0.1', 5431)").await;
        for port in [5432, 5433] {
            run(&coordinator, &format!("select citus_add_node('127.0.0.1', {port})")).await;
        }
        self.close(name).await;
    }

    async fn make_spread(&self) {
        let name = Template::Spread.name();
        self.copy(Template::Empty, name).await;
        let coordinator = on(&self.nodes[0], name);
        let migrator = Migrator::new(&format!("{coordinator}?options[citus.shard_count]=4")).unwrap();
        migrator.apply().await.unwrap();
        // Given before it is spread, the rights are given again by that.
        for role in [Role::App, Role::Caller, Role::Auditor, Role::Operator] {
            migrator.grant(role, &server::user(role)).await.unwrap();
        }
        migrator.distribute().await.unwrap();
        // Views of two tables are read there by who may read both.
        migrator.grant(Role::Auditor, &server::user(Role::Operator)).await.unwrap();
        self.close(name).await;
    }

    async fn copy(&self, template: Template, name: &str) {
        for node in &self.nodes {
            run(node, &format!("create database {name} template {}", template.name())).await;
        }
    }

    /// Nobody is in a database that is copied, which Citus's own process would be.
    async fn close(&self, name: &str) {
        for node in &self.nodes {
            run(node, &format!("alter database {name} allow_connections false")).await;
            let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname";
            run(node, &format!("{end} = '{name}'")).await;
        }
    }
}

/// The address of another database of the same server.
fn on(node: &str, database: &str) -> String {
    let (server, _) = node.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}

async fn run(url: &str, sql: &str) {
    let mut admin = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut admin).await.unwrap();
}
