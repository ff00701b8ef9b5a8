//! The rings of the specification, and the times of its trials.
//!
//! `./test` runs the first ring, `./test --all` and a run that names its tests run what they name of both. In the first are all
//! tests on SQLite, and of each topic a test on each server; but none that is long.

use std::collections::{BTreeMap, BTreeSet};
use std::env::var_os;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

/// The topics, each with the tests that go first on the servers too: the most telling one, and those of one server alone.
const TOPICS: &[(&str, &[&str])] = &[
    ("backtest", &["the_command_tests_another_policy_on_recorded_checks"]),
    ("capacity", &["a_lease_is_granted_once_and_followed_by_its_own"]),
    ("chain", &["the_same_rows_have_the_same_hashes_everywhere"]),
    ("checkpoint", &["a_checkpoint_and_a_proof_are_what_the_document_says"]),
    (
        "clock",
        &[
            "a_clock_that_goes_backwards_never_moves_a_bucket_back",
            "a_database_of_tests_goes_by_the_clock_that_its_owner_sets",
            "a_hostile_search_path_changes_nothing",
            "a_time_zone_that_calls_itself_utc_changes_nothing",
            "no_other_database_becomes_one_of_tests",
            "set_timestamp_changes_nothing",
        ],
    ),
    ("coalesced", &["what_comes_after_a_coalesced_row_is_decided_as_without_it"]),
    ("cut", &["a_migration_of_what_is_gone_that_was_cut_off_anywhere_is_ended_by_the_next"]),
    ("differential", &["the_database_decides_what_the_core_decides"]),
    ("documented", &["the_examples_show_what_they_print"]),
    (
        "durability",
        &[
            "a_commit_waits_unless_all_that_it_records_is_relaxed_and_it_is_our_own",
            "a_zone_keeps_its_choices_in_every_version",
        ],
    ),
    ("engine", &["an_app_touches_no_table", "what_does_not_follow_is_refused_or_found"]),
    (
        "erase",
        &["nothing_of_the_person_is_left_and_every_row_is_still_proven", "who_comes_next_may_begin_at_once"],
    ),
    ("exact", &["sixty_four_clients_on_one_key_get_exactly_the_limit"]),
    ("explain", &["a_decision_is_found_by_its_key_and_a_time"]),
    ("export", &["what_was_interrupted_is_gone_on_with_to_the_same_bytes"]),
    ("flat", &["a_check_is_one_round_trip"]),
    ("floods", &["a_flood_of_blocked_checks_is_counted_in_a_few_rows"]),
    ("gate", &["an_unmigrated_database_says_what_to_run"]),
    ("hazards", &["h02_a_waiter_sees_what_was_spent_while_it_waited"]),
    ("hosts", &["calls_go_on_at_another_server_and_return_to_the_first"]),
    ("idempotence", &["sixteen_clients_with_one_txn_are_charged_once"]),
    ("input", &["what_cannot_be_stored_is_refused_and_writes_nothing"]),
    (
        "joined",
        &[
            "a_new_key_after_a_removal_lets_its_neighbours_in",
            "a_payment_with_two_limits_commits_or_rolls_back_both_together",
            "a_routine_that_joins_refuses_to_run_without_one",
            "a_routine_that_owns_its_transaction_refuses_to_run_in_one",
            "an_old_snapshot_is_decided_exactly_or_must_be_retried",
            "an_old_snapshot_locks_no_unrelated_bucket",
            "an_old_snapshot_of_what_is_held_must_be_retried",
            "two_checks_in_one_transaction_both_count",
            "what_is_held_locks_no_unrelated_bucket",
        ],
    ),
    (
        "kill",
        &[
            "a_connection_whose_statement_was_killed_is_not_used_again",
            "a_killed_statement_gives_nothing_back_by_halves",
            "a_killed_statement_leaves_no_half_of_a_decision",
            "killed_statements_tear_no_bucket",
        ],
    ),
    ("ledger", &["history_pages_through_every_row_once"]),
    ("limits", &["the_binding_limit_is_named_and_what_it_holds_back_spends_nothing"]),
    ("local", &["a_hot_key_is_decided_by_its_process_and_adds_up"]),
    ("locks", &["a_failed_call_gives_its_locks_back", "the_clock_is_read_after_the_lock_is_held"]),
    (
        "maintain",
        &[
            "rows_of_the_last_partition_are_read_before_it_is_locked",
            "what_is_old_is_dropped_and_what_is_left_still_closes",
        ],
    ),
    ("moving", &["a_move_that_was_cut_off_is_finished_by_the_next"]),
    ("patience", &["a_held_bucket_and_a_short_deadline_are_no_outage"]),
    ("pgbouncer", &["four_hundred_decisions_through_a_transaction_pool_are_right"]),
    ("prediction", &["what_is_predicted_is_what_the_core_learned"]),
    ("queue", &["items_are_taken_in_order_at_the_pace"]),
    ("real", &["of_528_logins_by_address_81_are_allowed_and_447_blocked"]),
    ("refunds", &["a_refund_gives_back_in_every_bucket_that_was_charged_or_in_one"]),
    ("removal", &["a_zone_that_was_never_used_is_removed_and_its_number_is_not_given_again"]),
    ("removals", &["what_upkeep_drops_is_recorded_and_chained_and_a_checkpoint_tells_how_much_it_was"]),
    ("reports", &["a_report_says_what_a_recount_of_the_ledger_says"]),
    (
        "rights",
        &[
            "each_role_does_its_work_and_is_refused_that_of_the_others",
            "no_routine_is_everybodys_and_each_has_a_fixed_search_path",
            "nobody_but_the_owner_may_put_anything_into_the_schema",
        ],
    ),
    (
        "restored",
        &[
            "a_restored_dump_goes_on_where_it_was",
            "a_schema_with_another_name_goes_on",
            "the_printed_sql_is_applied_by_the_servers_own_client",
        ],
    ),
    ("rules", &["a_zone_is_decided_by_the_rules_that_it_was_set_with"]),
    (
        "schema",
        &[
            "a_database_that_is_not_in_utf8_is_refused_in_one_sentence",
            "a_migrator_waits_for_one_at_another_node",
            "migrating_again_changes_nothing",
            "patterns_are_made_as_they_are_written",
        ],
    ),
    (
        "seeds",
        &[
            "check_velocity_answers_as_in_the_seed",
            "rate_limiting_request_counts_down_and_refills",
            "serializable_by_default_changes_nothing",
        ],
    ),
    (
        "sessions",
        &[
            "a_number_that_the_session_sets_is_no_rows",
            "a_session_uses_up_no_numbers_of_zones",
            "an_error_names_any_value_and_leaves_no_transaction_open",
            "settings_of_a_pool_change_no_decision",
            "settings_of_the_session_fail_no_call",
        ],
    ),
    (
        "sharded",
        &[
            "each_key_is_decided_by_one_database_and_exactly",
            "moving_all_that_was_cut_off_goes_on",
            "what_one_database_cannot_keep_is_set_in_none",
        ],
    ),
    ("standing", &["how_a_bucket_stands_is_what_a_check_meets"]),
    ("together", &["a_bad_check_fails_alone", "many_who_leave_before_their_turn_are_passed_over"]),
    ("tracks", &["an_owner_who_covers_tracks_is_found"]),
    ("upgrade", &["a_database_with_data_is_upgraded_and_keeps_its_data_and_its_rights"]),
    ("vectors", &["every_vector_is_decided_as_written"]),
    (
        "verify",
        &["a_time_that_cannot_be_read_is_never_verified", "each_change_of_a_ledger_is_found_where_it_is"],
    ),
    ("waiting", &["the_promised_wait_is_the_least_that_passes"]),
];

/// Tests that are too long for the first ring, which has others of their topic, and in the second are run on PostgreSQL and MySQL.
pub const LONG: &[&str] = &[
    "exact::a_thousand_callers_with_new_keys_all_get_an_answer",
    "exact::a_thousand_serializable_callers_with_new_keys_all_get_an_answer",
    "exact::serializable_callers_with_ids_of_their_own_rarely_meet",
    "engine::sixteen_processes_by_both_ways_are_exact_and_nobody_starves",
    "explain::what_counted_is_what_a_plain_count_finds",
    "hazards::h03_blocked_checks_leave_no_bloat_and_nothing_in_the_catalogue",
    "joined::joined_calls_with_overlapping_buckets_never_deadlock",
    "kill::a_killed_server_keeps_every_decision_it_gave",
    "kill::a_killed_server_keeps_what_was_durable_and_loses_only_the_last_of_what_was_relaxed",
    "limits::two_hundred_callers_of_three_limits_each_never_fail_and_never_exceed_one",
    "local::a_steady_demand_uses_nearly_all_of_the_limit",
    "moving::a_move_that_was_killed_anywhere_is_finished_by_the_next",
    "moving::a_mover_that_was_killed_leaves_nothing_that_the_next_does_not_finish",
    "moving::every_algorithm_goes_on_where_it_was_and_comes_back",
    "queue::a_queue_goes_on_where_a_session_that_settled_it_was_killed",
    "sharded::a_database_is_added_while_checks_go_on",
    "sharded::a_database_that_is_down_stops_its_own_buckets_only",
];

/// The trials that are told at the end of a run.
const SLOWEST: usize = 20;

/// The trials of a run, with their times.
pub struct Trials {
    list: Vec<Trial>,
    names: BTreeSet<String>,
    times: Times,
    /// The second ring is left out.
    first_only: bool,
    listed: bool,
}

type Times = Arc<Mutex<Vec<(String, Duration)>>>;

impl Trials {
    pub fn new(arguments: &Arguments) -> Self {
        let named = arguments.filter.is_some() || arguments.ignored || arguments.include_ignored;
        let all = ["TALLYGATE_TEST_ALL", "TALLYGATE_SOAK"].iter().any(|name| var_os(name).is_some());
        Self {
            list: Vec::new(),
            names: BTreeSet::new(),
            times: Times::default(),
            first_only: !named && !all,
            listed: arguments.list,
        }
    }

    pub fn add(&mut self, name: String, test: impl FnOnce() + Send + 'static) {
        let left_out = left_out(&name).filter(|_| self.first_only);
        let (named, times) = (name.clone(), Arc::clone(&self.times));
        let trial = Trial::test(name.clone(), move || {
            let began = Instant::now();
            test();
            times.lock().unwrap().push((named, began.elapsed()));
            Ok(())
        });
        // A list tells the reason.
        let reason = left_out.filter(|_| self.listed).unwrap_or_default();
        self.list.push(trial.with_ignored_flag(left_out.is_some()).with_kind(reason));
        self.names.insert(name);
    }

    pub fn run(mut self, arguments: &Arguments) -> ExitCode {
        let names = std::mem::take(&mut self.names);
        self.add("core::rings::each_topic_and_each_name_of_the_lists_is_there".to_owned(), move || {
            judge(&names)
        });
        let conclusion = libtest_mimic::run(arguments, self.list);
        let mut times = self.times.lock().unwrap();
        if times.len() > SLOWEST {
            tell(&mut times);
        }
        drop(times);
        conclusion.exit_code()
    }
}

/// A trial's server, topic and test.
fn parts(name: &str) -> (&str, &str, &str) {
    let (server, rest) = name.split_once("::").unwrap_or_default();
    let (topic, test) = rest.split_once("::").unwrap_or_default();
    (server, topic, test)
}

/// Is a test one of those that tell most of their topic?
pub fn goes_first(test: &str) -> bool {
    let (topic, test) = test.split_once("::").unwrap_or_default();
    TOPICS.iter().any(|(named, tests)| *named == topic && tests.contains(&test))
}

/// The reason why a trial is in the second ring; None for one of the first.
fn left_out(name: &str) -> Option<&'static str> {
    let (server, topic, test) = parts(name);
    let name = format!("{topic}::{test}");
    match server {
        "core" | "citus" => None,
        _ if LONG.contains(&&*name) => Some("it is long"),
        "sqlite" => None,
        _ if goes_first(&name) => None,
        _ => Some("another test of its topic goes first on this server"),
    }
}

fn judge(names: &BTreeSet<String>) {
    let of_databases =
        names.iter().map(|name| parts(name)).filter(|(server, ..)| !matches!(*server, "core" | "citus"));
    let (mut topics, mut tests) = (BTreeSet::new(), BTreeSet::new());
    for (_, topic, test) in of_databases {
        topics.insert(topic);
        tests.insert(format!("{topic}::{test}"));
    }
    let listed: BTreeSet<_> = TOPICS.iter().map(|(topic, _)| *topic).collect();
    assert_eq!(topics, listed, "the topics of the tests, and those of the first ring");
    let mut listed: Vec<_> = LONG.iter().map(|name| (*name).to_owned()).collect();
    for (topic, tests) in TOPICS {
        listed.extend(tests.iter().map(|test| format!("{topic}::{test}")));
    }
    listed.retain(|name| !tests.contains(name));
    assert!(listed.is_empty(), "no test has these names: {listed:?}");
    for server in ["postgres", "mysql", "mariadb", "sqlite"] {
        let of_server = names.iter().filter(|name| name.split("::").next().unwrap().starts_with(server));
        let (mut topics, mut first) = (BTreeSet::new(), BTreeSet::new());
        for name in of_server {
            topics.insert(parts(name).1);
            first.extend(left_out(name).is_none().then(|| parts(name).1));
        }
        assert_eq!(topics, first, "{server}: the topics, and those with a test in the first ring");
    }
}

/// The slowest trials, and the sums by topic and by server.
fn tell(times: &mut [(String, Duration)]) {
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let all: Duration = times.iter().map(|(_, time)| *time).sum();
    eprintln!("{} trials took {:.0} s in all; the slowest, and the sums:", times.len(), all.as_secs_f64());
    for (name, time) in times.iter().take(SLOWEST) {
        eprintln!("{:8.1} s  {name}", time.as_secs_f64());
    }
    for part in [|name| parts(name).1, |name| parts(name).0] {
        let mut sums = BTreeMap::<&str, (u32, Duration)>::new();
        for (name, time) in &*times {
            let sum = sums.entry(part(name)).or_default();
            *sum = (sum.0 + 1, sum.1 + *time);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
        for (what, (trials, time)) in sums {
            eprintln!("{:8.1} s  {trials:4} × {what}", time.as_secs_f64());
        }
    }
}
