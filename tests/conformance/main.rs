//! The specification, run against every database.
//!
//! A test is an async function of a fresh [`Db`]; the lists below say on which databases it runs. Its name in
//! the output is `database::topic::sentence`. A database that cannot be had fails its tests and says what
//! provides it; none is skipped. Citus is built from a source tree: where its image is named, `citus::…` is what PostgreSQL is
//! held to on its nodes.

mod backtest;
mod capacity;
mod chain;
mod checkpoint;
mod child;
mod citus;
mod clock;
mod coalesced;
mod cut;
mod db;
mod differential;
mod documented;
mod durability;
mod engine;
mod erase;
mod exact;
mod explain;
mod export;
mod flat;
mod floods;
mod gate;
mod hazards;
mod hosts;
mod idempotence;
mod input;
mod joined;
mod kill;
mod ledger;
mod limits;
mod local;
mod locks;
mod maintain;
mod model;
mod moving;
#[path = "../core/naive.rs"]
#[allow(dead_code)]
mod naive;
mod patience;
mod pgbouncer;
mod prediction;
mod program;
mod proxy;
mod queue;
mod real;
mod refunds;
mod removal;
mod removals;
mod reports;
mod restored;
mod retries;
mod rights;
mod rings;
mod rules;
mod schema;
mod seeds;
mod server;
mod sessions;
mod sharded;
mod standing;
mod together;
mod tracks;
mod upgrade;
mod vectors;
mod verify;
mod waiting;

use std::collections::HashSet;
use std::sync::Arc;

use db::{Db, Engine};
use libtest_mimic::Arguments;
use rings::Trials;
use tokio::runtime::Builder;

/// The share of a bounded amount of work to do: all of it in `./soak`, less in `./test`.
pub fn rounds(test: usize, soak: usize) -> usize {
    if std::env::var_os("TALLYGATE_SOAK").is_some() { soak } else { test }
}

/// The same of work that is long: a third of it in `./test --all`, an eighth in the first ring.
pub fn rounds_of_long(all: usize, soak: usize) -> usize {
    let share = if std::env::var_os("TALLYGATE_TEST_ALL").is_some() { 3 } else { 8 };
    rounds(all.div_ceil(share), soak)
}

/// Topics of reading what was decided, of removing it, and of what the library does around a decision: the work is the same on MySQL
/// and on MariaDB but for a few statements. With `TALLYGATE_EVERY_WAY`, or in `./soak`, all of it is run on MariaDB too.
const READERS: [&str; 21] = [
    "backtest",
    "checkpoint",
    "cut",
    "durability",
    "erase",
    "explain",
    "export",
    "floods",
    "hosts",
    "ledger",
    "maintain",
    "moving",
    "patience",
    "removal",
    "removals",
    "reports",
    "sharded",
    "standing",
    "together",
    "tracks",
    "verify",
];

/// Runs a test on a thread with more stack than usual: unoptimized, one that makes many calls has large frames.
fn with_room(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn_scoped(scope, test);
        if let Err(panic) = thread.unwrap().join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn main() -> std::process::ExitCode {
    // Unoptimized, a future of ours leaves a caller half of the stack that a worker has by default.
    let runtime = Builder::new_multi_thread().enable_all().thread_stack_size(1 << 20).build();
    let runtime = Arc::new(runtime.expect("a runtime"));
    if let Some(work) = child::work_of_this_process() {
        runtime.block_on(work.run());
        return std::process::ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // They wait for servers, locks and times longer than they compute.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(4 * cores);
    let mut trials = Trials::new(&arguments);
    let mut of_postgres = HashSet::new();
    let every_way =
        ["TALLYGATE_EVERY_WAY", "TALLYGATE_SOAK"].iter().any(|name| std::env::var_os(name).is_some());

    /// `on(engines): topic::test, …` adds a trial for each engine and test; with `apart`, on a server of its own each.
    macro_rules! on {
        (apart $engines:expr => $($list:tt)*) => { on!(create_apart, $engines => $($list)*) };
        ($create:ident, $engines:expr => $($topic:ident::$test:ident),* $(,)?) => {
            for engine in $engines {
                $({
                    let name = concat!(stringify!($topic), "::", stringify!($test));
                    // One server of each kind tells of what is long.
                    let is_told = rings::LONG.contains(&name)
                        || READERS.contains(&stringify!($topic)) && !rings::goes_first(name);
                    if every_way || engine != MariaDb || !is_told {
                        let runtime = Arc::clone(&runtime);
                        trials.add(format!("{engine}::{name}"), move || {
                            with_room(|| {
                                runtime.block_on(async { $topic::$test(Db::$create(engine, name).await).await })
                            });
                        });
                    }
                    if engine == Postgres {
                        of_postgres.insert(name);
                    }
                    if engine == Postgres && citus::is_there() && citus::is_run(name) {
                        let runtime = Arc::clone(&runtime);
                        trials.add(format!("citus::{name}"), move || {
                            with_room(|| {
                                runtime.block_on(async {
                                    $topic::$test(Db::create_spread(name).await).await
                                });
                            });
                        });
                    }
                })*
            }
        };
        ($engines:expr => $($list:tt)*) => { on!(create, $engines => $($list)*) };
    }
    use Engine::{MariaDb, MySql, Postgres, Sqlite};

    on!([Postgres, MySql, MariaDb, Sqlite] =>
        capacity::a_lease_is_granted_once_and_followed_by_its_own,
        capacity::a_long_life_never_hands_out_more_than_there_is,
        capacity::a_resource_moves_with_its_leases,
        capacity::a_tree_has_what_its_root_has_within_one_lease,
        capacity::a_tree_holds_more_than_its_root_by_what_was_lent_anew_at_most,
        capacity::what_is_given_back_twice_is_written_once,
        capacity::clients_at_once_never_hold_more_than_there_is,
        capacity::clients_get_their_shares,
        capacity::leases_are_proven_erased_and_dropped,
        capacity::what_cannot_be_leased_is_refused,
        prediction::a_backtest_predicts_as_the_database_does,
        prediction::a_prediction_is_moved_with_its_bucket,
        prediction::a_settlement_that_joins_teaches_when_it_is_committed,
        prediction::predictions_are_proven_erased_and_dropped,
        prediction::requests_at_once_teach_one_after_the_other,
        prediction::what_cannot_be_predicted_is_refused,
        prediction::what_is_predicted_is_what_the_core_learned,
        local::a_bucket_moves_with_what_was_taken_of_it,
        local::a_check_that_fits_is_not_blocked_by_what_its_process_took,
        local::a_hot_key_is_decided_by_its_process_and_adds_up,
        local::callers_at_once_wait_for_what_one_of_them_takes,
        local::each_local_decision_has_its_line,
        local::nothing_is_taken_where_nothing_may_be,
        local::processes_that_are_killed_never_come_to_more_than_the_limit,
        local::takes_are_proven_explained_erased_and_dropped,
        local::what_was_taken_is_settled_once_and_ended_by_nothing_else,
        local::without_a_word_of_the_zone_each_check_is_decided_by_the_database,
        queue::a_full_queue_evicts_the_least_important_or_refuses,
        queue::a_long_life_of_a_queue_is_derived_again,
        queue::a_call_that_finds_no_queue_leaves_none,
        queue::a_look_at_a_queue_leaves_no_trace_of_its_time,
        queue::what_is_due_at_once_is_settled_in_steps,
        queue::the_dead_are_seen_at_once_and_may_still_be_done,
        queue::a_queue_moves_with_what_is_in_it,
        queue::each_item_is_done_once_or_dead_however_workers_are_killed,
        queue::items_are_taken_in_order_at_the_pace,
        queue::queues_are_proven_erased_and_dropped,
        queue::receipts_of_the_overtaken_are_refused,
        queue::what_cannot_be_queued_is_refused,
        queue::who_waits_for_the_next_item_gets_it,
        queue::who_waits_is_woken,
        chain::every_version_of_a_zone_is_chained,
        chain::the_same_rows_have_the_same_hashes_everywhere,
        backtest::the_command_tests_another_policy_on_recorded_checks,
        backtest::the_policy_that_decided_finds_in_the_ledger_what_it_decided,
        checkpoint::a_bucket_or_rows_that_were_removed_are_found,
        checkpoint::a_bucket_or_rows_with_old_times_are_found,
        checkpoint::a_checkpoint_and_a_proof_are_what_the_document_says,
        checkpoint::a_chain_that_was_rewritten_with_right_hashes_is_found,
        checkpoint::a_ledger_that_went_on_is_unaltered,
        checkpoint::a_transaction_is_proven_by_two_files_alone,
        checkpoint::what_was_dropped_is_compared_as_far_as_it_is_known,
        checkpoint::a_version_that_was_edited_or_a_zone_that_was_removed_is_found,
        clock::a_clock_that_goes_backwards_never_moves_a_bucket_back,
        clock::a_wait_counts_from_now_where_a_clock_was_ahead,
        clock::rows_for_which_it_is_not_time_yet_are_reported,
        coalesced::a_coalesced_row_stands_for_many_checks_and_spends_nothing,
        coalesced::what_comes_after_a_coalesced_row_is_decided_as_without_it,
        coalesced::a_row_for_many_follows_a_blocked_check_of_a_zone_that_chose_it,
        coalesced::a_row_that_stands_for_no_check_is_refused,
        cut::a_first_migration_that_was_cut_off_anywhere_is_ended_by_the_next,
        cut::a_change_of_a_zone_that_was_cut_off_anywhere_is_ended_by_the_next,
        cut::an_erasure_that_was_cut_off_anywhere_is_ended_by_the_next,
        cut::upkeep_that_was_cut_off_anywhere_is_ended_by_the_next,
        durability::a_zone_keeps_its_choices_in_every_version,
        differential::the_database_decides_what_the_core_decides,
        erase::an_erased_bucket_is_closed_and_its_key_begins_anew,
        erase::nothing_of_the_person_is_left_and_every_row_is_still_proven,
        erase::what_maintain_left_of_a_bucket_is_erased_with_it,
        explain::a_ban_is_explained_by_the_checks_that_brought_it_about,
        explain::a_decision_is_found_by_its_key_and_a_time,
        explain::a_row_that_was_changed_is_not_reproduced,
        explain::a_wait_beyond_the_calendar_is_told,
        explain::what_counted_is_what_a_plain_count_finds,
        export::what_is_exported_is_the_ledger_and_its_chain_in_every_format,
        export::what_was_interrupted_is_gone_on_with_to_the_same_bytes,
        exact::sixty_four_clients_on_one_key_get_exactly_the_limit,
        exact::sixty_four_clients_on_one_token_bucket_get_exactly_the_burst,
        exact::sixty_four_clients_that_travel_together_get_exactly_the_limit,
        exact::a_batch_of_thousands_on_one_key_gets_exactly_the_limit,
        exact::batches_from_many_clients_get_exactly_the_limit,
        exact::a_thousand_callers_with_new_keys_all_get_an_answer,
        exact::sixteen_processes_on_one_key_get_exactly_the_limit,
        exact::no_window_of_a_random_load_holds_more_than_the_limit,
        flat::a_check_reads_no_more_rows_of_a_long_window_than_of_a_short_one,
        floods::a_change_of_policy_ends_what_was_remembered,
        floods::a_flood_of_blocked_checks_is_counted_in_a_few_rows,
        floods::a_joined_refund_ends_what_was_remembered,
        floods::a_txn_of_the_callers_own_always_has_its_row,
        floods::a_zone_may_choose_it_while_it_is_in_use,
        floods::what_is_counted_is_recorded_by_itself_and_what_is_told_is_enough,
        gate::an_unmigrated_database_says_what_to_run,
        gate::a_newer_schema_is_worked_with_unless_one_of_its_migrations_is_breaking,
        gate::an_older_schema_says_what_to_run,
        gate::whoever_has_a_role_may_ask_what_is_unapplied,
        idempotence::sixteen_clients_with_one_txn_are_charged_once,
        idempotence::another_member_is_a_conflict_and_writes_nothing,
        idempotence::another_cost_is_a_conflict_and_writes_nothing,
        idempotence::a_txn_is_its_own_in_each_bucket,
        idempotence::a_txn_twice_in_one_batch_is_charged_once,
        input::an_algorithm_that_nobody_knows_is_an_error_everywhere,
        input::what_cannot_be_stored_is_refused_and_writes_nothing,
        input::meta_characters_are_plain_data,
        input::keys_are_compared_byte_by_byte,
        input::the_tables_refuse_what_the_library_refuses,
        joined::a_pool_of_one_connection_is_enough,
        joined::a_payment_with_two_limits_commits_or_rolls_back_both_together,
        joined::a_refund_sees_the_charge_of_its_own_transaction,
        joined::a_reservation_and_its_end_join_the_callers_transaction,
        joined::a_reversal_in_its_own_transaction_gives_both_back_or_neither,
        joined::a_rollback_takes_the_decision_away_and_a_commit_keeps_it,
        joined::joined_calls_with_overlapping_buckets_never_deadlock,
        joined::what_joins_is_refused_where_no_transaction_is_open,
        ledger::history_pages_through_every_row_once,
        ledger::history_filters_by_zone_key_txn_outcome_and_time,
        ledger::a_peek_leaves_no_row_unless_asked,
        ledger::a_zone_keeps_every_version_and_no_empty_one,
        ledger::the_policy_in_force_is_known_and_renewed,
        limits::a_request_of_several_limits_is_decided_once,
        limits::the_binding_limit_is_named_and_what_it_holds_back_spends_nothing,
        limits::two_hundred_callers_of_three_limits_each_never_fail_and_never_exceed_one,
        locks::a_limiter_may_be_dropped_without_a_runtime,
        maintain::a_bucket_whose_row_was_removed_comes_back_as_it_was,
        maintain::an_auditor_sees_when_it_was_done_and_how_far_partitions_reach,
        maintain::checks_go_on_while_it_is_maintained,
        maintain::what_is_left_is_verified_and_each_change_of_it_is_found,
        maintain::what_has_ended_is_removed_and_the_bucket_is_as_quick_as_before,
        maintain::what_is_old_is_dropped_and_what_is_left_still_closes,
        locks::a_dropped_call_leaves_no_lock_and_its_txn_tells_what_became_of_it,
        moving::every_algorithm_goes_on_where_it_was_and_comes_back,
        moving::nothing_happens_behind_the_mark,
        moving::a_move_that_was_cut_off_is_finished_by_the_next,
        moving::a_move_that_was_killed_anywhere_is_finished_by_the_next,
        moving::a_mover_that_was_killed_leaves_nothing_that_the_next_does_not_finish,
        moving::callers_who_follow_the_mark_are_decided_exactly,
        moving::movers_at_once_all_find_it_moved,
        moving::a_bucket_without_its_oldest_rows_or_its_head_moves_too,
        moving::each_change_of_what_was_moved_is_found,
        moving::what_cannot_be_moved_is_refused,
        patience::a_held_bucket_and_a_short_deadline_are_no_outage,
        patience::no_deadline_is_too_long,
        patience::a_leaky_queue_tells_each_caller_when_its_turn_is,
        patience::those_who_wait_pass_in_the_order_of_their_coming,
        patience::what_the_ledger_refuses_for_good_is_kept_aside,
        patience::who_waits_too_short_is_told_so_and_what_is_given_back_is_noticed,
        real::of_528_logins_by_address_81_are_allowed_and_447_blocked,
        refunds::a_refund_gives_back_in_every_bucket_that_was_charged_or_in_one,
        refunds::a_reservation_ends_exactly_at_its_time_and_a_late_settlement_is_a_debt,
        refunds::an_override_with_a_longer_window_knows_what_was_given_back,
        refunds::the_same_refund_from_sixteen_callers_happens_once,
        refunds::what_cannot_be_given_back_is_refused_and_writes_nothing,
        restored::a_restored_dump_goes_on_where_it_was,
        restored::the_printed_sql_is_applied_by_the_servers_own_client,
        rights::a_grantee_that_cannot_be_is_one_clear_error,
        rights::hostile_text_is_only_text,
        removal::a_check_that_came_before_keeps_its_zone,
        removal::a_zone_that_anything_names_stays,
        removal::a_zone_that_was_never_used_is_removed_and_its_number_is_not_given_again,
        removal::who_knew_a_zone_that_was_removed_is_told_and_finds_the_new_one,
        rules::a_zone_is_decided_by_the_rules_that_it_was_set_with,
        rules::later_rules_are_a_new_version_and_older_ones_never_come_back,
        rules::stored_rules_that_cannot_be_read_are_told_by_table_and_column,
        removals::a_bucket_that_was_erased_by_hand_is_found,
        removals::a_run_that_was_cut_off_is_finished_and_counted_once,
        removals::an_erasure_that_was_rewritten_with_its_hash_is_found_by_a_checkpoint,
        removals::each_change_of_an_erasure_is_found,
        removals::each_change_of_what_was_dropped_is_found,
        removals::rows_that_no_run_of_upkeep_dropped_are_missing,
        removals::what_is_in_force_keeps_its_row,
        removals::what_upkeep_drops_is_recorded_and_chained_and_a_checkpoint_tells_how_much_it_was,
        rights::who_is_logged_in_is_recorded_beside_who_is_said_to_act,
        reports::a_report_says_what_a_recount_of_the_ledger_says,
        reports::what_cannot_be_reported_on_is_refused,
        schema::twenty_migrators_at_once_all_succeed,
        schema::migrating_again_changes_nothing,
        hazards::h01_a_late_waiter_never_moves_the_anchor_back,
        hazards::h02_a_waiter_sees_what_was_spent_while_it_waited,
        hazards::h05_contention_never_turns_into_a_denial,
        hazards::h06_one_zones_rejection_can_take_back_what_the_others_gave,
        hazards::h07_a_held_row_is_waited_for_never_skipped,
        hazards::h08_the_callers_savepoint_outlives_the_check_that_it_takes_back,
        hazards::h09_the_first_call_of_a_bucket_is_held_to_the_limit,
        hazards::h12_blocked_checks_consume_nothing,
        hazards::h13_a_long_idle_gives_no_extra_token,
        seeds::the_typed_calls_answer_as_the_routines_do,
        seeds::the_typed_calls_join_the_callers_transaction,
        standing::bans_limits_of_their_own_and_modes_are_seen,
        standing::buckets_are_listed_by_key_and_found_in_every_zone,
        standing::how_a_bucket_stands_is_what_a_check_meets,
        standing::what_a_change_of_policy_forgot_is_not_held,
        together::a_bad_check_fails_alone,
        together::a_runtime_may_end_while_checks_wait,
        together::callers_of_one_bucket_are_decided_in_the_order_of_their_coming,
        together::callers_that_leave_harm_no_other,
        tracks::an_owner_who_covers_tracks_is_found,
        upgrade::a_database_with_data_is_upgraded_and_keeps_its_data_and_its_rights,
        upgrade::an_older_migrator_leaves_a_newer_schema_as_it_is,
        upgrade::old_and_new_programs_check_side_by_side_while_it_is_upgraded,
        vectors::every_vector_is_decided_as_written,
        verify::a_change_of_a_zone_is_found,
        verify::a_decision_that_does_not_follow_from_the_rows_before_it_is_found,
        verify::an_override_that_was_lengthened_is_found,
        verify::each_change_of_a_ledger_is_found_where_it_is,
        verify::every_column_of_a_row_is_held,
        waiting::the_promised_wait_is_the_least_that_passes,
    );
    on!([Postgres, MySql, MariaDb] =>
        erase::who_comes_next_may_begin_at_once,
        cut::a_grant_that_was_cut_off_anywhere_is_ended_by_the_next,
        cut::a_next_release_that_was_cut_off_anywhere_is_ended_by_the_next,
        cut::a_migration_of_what_is_gone_that_was_cut_off_anywhere_is_ended_by_the_next,
        kill::killed_statements_tear_no_bucket,
        sessions::a_pool_that_cannot_decide_says_why,
        sessions::no_argument_is_cut_before_it_is_looked_at,
        sessions::settings_of_a_pool_change_no_decision,
        waiting::a_total_is_found_where_a_scan_finds_it,
        clock::a_database_of_tests_goes_by_the_clock_that_its_owner_sets,
        clock::a_database_of_tests_stays_one,
        clock::a_skewed_client_changes_nothing,
        clock::no_other_database_becomes_one_of_tests,
        clock::the_sessions_time_zone_changes_nothing,
        exact::sixty_four_serializable_clients_on_one_key_get_exactly_the_limit,
        hazards::h03_two_batches_in_one_transaction_both_count,
        hazards::h04_keys_and_zones_do_not_wait_for_each_other,
        hazards::h10_a_session_in_daylight_saving_time_changes_nothing,
        hazards::h11_no_routine_takes_its_time_from_the_client,
        exact::a_thousand_serializable_callers_with_new_keys_all_get_an_answer,
        exact::serializable_callers_with_ids_of_their_own_rarely_meet,
        flat::a_batch_reads_no_more_rows_of_large_tables_than_of_small_ones,
        flat::a_check_is_one_round_trip,
        flat::each_way_of_a_check_takes_so_many_round_trips,
        flat::an_id_is_looked_for_in_its_bucket_alone,
        flat::a_wait_among_four_times_as_many_refunds_or_reservations_reads_about_four_times_as_much,
        flat::overrides_are_read_without_the_other_rows_of_their_bucket,
        idempotence::no_caller_can_have_an_id_decided_twice,
        input::a_txn_in_plain_sql_is_charged_once_however_it_is_written,
        locks::a_late_first_attempt_finds_what_the_second_one_decided,
        locks::a_held_bucket_delays_no_other_and_its_waiters_end_at_their_deadline,
        locks::a_held_bucket_delays_no_other_when_serializable,
        locks::the_clock_is_read_after_the_lock_is_held,
        locks::the_policy_is_read_after_the_lock_is_held,
        locks::a_row_that_vanishes_while_one_waits_is_made_again,
        gate::a_wrong_password_or_a_server_that_is_down_is_one_clear_line,
        kill::what_a_dropped_call_is_answered_reaches_nobody_else,
        queue::a_queue_goes_on_where_a_session_that_settled_it_was_killed,
        kill::what_comes_after_a_dropped_call_is_not_lost_with_it,
        locks::a_lost_connection_at_commit_is_decided_once,
        locks::batches_with_overlapping_buckets_never_deadlock,
        joined::an_old_snapshot_is_decided_exactly_or_must_be_retried,
        maintain::nobody_but_the_owner_can_hold_upkeep_up,
        maintain::one_works_at_a_time_and_what_a_killed_run_left_the_next_one_finishes,
        maintain::what_is_old_goes_where_no_partition_can_be_made,
        hosts::a_server_that_is_dead_or_silent_is_passed_by,
        hosts::calls_go_on_at_another_server_and_return_to_the_first,
        hosts::that_no_server_is_what_is_wanted_is_told,
        patience::a_check_is_tried_again_where_its_database_comes_back,
        patience::an_outage_is_known_to_the_next_check,
        patience::each_check_has_its_row_once_whenever_the_database_goes,
        patience::what_passes_unchecked_is_in_the_ledger_afterwards_once,
        verify::a_lost_connection_does_not_end_a_verification,
        together::a_bucket_keeps_its_order_when_its_call_is_split,
        together::a_held_bucket_delays_none_that_travel_with_it,
        together::an_uncommitted_new_bucket_delays_none_that_travel_with_it,
        together::each_caller_has_its_own_deadline,
        together::what_waits_is_bounded,
        removal::a_check_that_comes_meanwhile_finds_no_zone,
        restored::what_is_gone_or_another_is_named_and_made_again,
        rights::a_lease_takes_the_role_of_an_app,
        rights::a_refusal_names_the_role_that_is_lacking,
        rights::a_role_gives_its_rights_to_its_members,
        rights::an_app_executes_the_public_routines_and_touches_no_table,
        rights::an_auditor_reads_every_view_and_writes_nothing,
        rights::an_operator_changes_nothing_of_a_zone_but_what_its_versions_keep,
        rights::an_operator_reads_all_of_a_bucket_but_its_salt,
        rights::an_operator_writes_zones_and_marks_and_does_not_see_the_ledger,
        rights::an_owner_migrates_an_empty_database_and_gives_the_other_roles,
        rights::each_role_does_its_work_and_is_refused_that_of_the_others,
        rights::every_view_shows_every_column_of_its_table,
        rights::granting_twice_changes_nothing,
        rights::a_routine_that_one_may_not_call_is_no_reason_to_wait,
        rights::the_command_shows_what_it_would_do_and_does_it,
        rights::who_is_no_more_is_forgotten_and_the_others_keep_their_rights,
        joined::an_open_check_keeps_nobody_from_changing_its_zone,
        schema::nobody_but_the_owner_can_hold_a_migrator_up,
        schema::the_database_tells_what_each_routine_is_for,
        documented::every_public_routine_has_its_signature,
        documented::the_examples_in_python_show_what_they_print,
        documented::the_examples_show_what_they_print,
        seeds::a_zone_is_named_by_its_name_or_its_number,
        seeds::a_zone_that_is_more_than_plain_is_refused_with_its_reason,
        seeds::a_zone_that_sql_callers_use_stays_plain_unless_it_is_said_twice,
        seeds::a_reservation_that_ends_in_a_full_bucket_leaves_it_full,
        seeds::check_velocity_answers_as_in_the_seed,
        seeds::rate_limiting_request_counts_down_and_refills,
        seeds::a_typed_call_whose_answer_is_lost_is_not_made_again,
        seeds::serializable_typed_calls_are_tried_again_until_they_are_decided,
        seeds::the_first_calls_of_a_new_id_never_fail,
        seeds::half_tokens_are_not_lost,
        seeds::a_refused_call_costs_nothing,
        seeds::the_wait_for_the_lock_earns_nothing_twice,
    );
    // PostgreSQL stands for itself with MySQL and MariaDB beside it, SQLite for three files.
    on!([Postgres, Sqlite] =>
        sharded::a_bucket_that_was_moved_is_followed,
        sharded::a_key_begins_in_the_database_that_it_belongs_to_or_nowhere,
        sharded::a_key_that_changes_its_database_begins_in_one_of_the_two,
        sharded::a_bucket_that_is_open_twice_or_that_no_mark_leads_to_is_found,
        sharded::a_caller_joins_the_database_of_the_key,
        sharded::a_database_is_added_while_checks_go_on,
        sharded::a_database_is_taken_out_while_checks_go_on,
        sharded::a_database_answers_to_its_own_name_only,
        sharded::a_transaction_is_found_wherever_it_is,
        sharded::each_key_is_decided_by_one_database_and_exactly,
        sharded::limits_of_several_databases_are_refused_unless_that_is_chosen,
        sharded::moving_all_that_was_cut_off_goes_on,
        sharded::owners_look_after_all_and_erase_in_one,
        sharded::what_is_read_is_read_of_all,
        sharded::zones_have_one_number_and_one_version_everywhere,
    );
    on!([Postgres] =>
        sharded::a_database_that_is_down_stops_its_own_buckets_only,
        sharded::what_one_database_cannot_keep_is_set_in_none,
    );
    on!([Postgres] =>
        clock::a_hostile_search_path_changes_nothing,
        clock::a_time_zone_that_calls_itself_utc_changes_nothing,
        durability::a_commit_waits_unless_all_that_it_records_is_relaxed_and_it_is_our_own,
        joined::two_checks_in_one_transaction_both_count,
        maintain::rows_of_the_last_partition_are_read_before_it_is_locked,
        together::many_who_leave_before_their_turn_are_passed_over,
        restored::a_schema_with_another_name_goes_on,
        schema::a_database_that_is_not_in_utf8_is_refused_in_one_sentence,
        schema::patterns_are_made_as_they_are_written,
        schema::what_cannot_be_distributed_says_what_it_lacks,
        rights::no_routine_is_everybodys_and_each_has_a_fixed_search_path,
        rights::nobody_but_the_owner_may_put_anything_into_the_schema,
        seeds::serializable_by_default_changes_nothing,
        verify::a_time_that_cannot_be_read_is_never_verified,
    );
    on!([MySql, MariaDb] =>
        clock::set_timestamp_changes_nothing,
        joined::a_new_key_after_a_removal_lets_its_neighbours_in,
        locks::an_act_goes_by_one_policy_to_its_end,
        joined::a_routine_that_owns_its_transaction_refuses_to_run_in_one,
        joined::a_routine_that_joins_refuses_to_run_without_one,
        joined::an_old_snapshot_locks_no_unrelated_bucket,
        joined::an_old_snapshot_of_what_is_held_must_be_retried,
        joined::what_is_held_locks_no_unrelated_bucket,
        kill::a_connection_whose_statement_was_killed_is_not_used_again,
        kill::a_killed_statement_leaves_no_half_of_a_decision,
        kill::a_killed_statement_gives_nothing_back_by_halves,
        locks::a_failed_call_gives_its_locks_back,
        sessions::a_number_that_the_session_sets_is_no_rows,
        sessions::a_session_uses_up_no_numbers_of_zones,
        sessions::an_error_names_any_value_and_leaves_no_transaction_open,
        sessions::settings_of_the_session_fail_no_call,
        schema::a_migrator_waits_for_one_at_another_node,
    );
    on!([Sqlite] =>
        local::a_shield_blocks_in_this_process_alone_and_leaves_no_row,
        local::a_steady_demand_uses_nearly_all_of_the_limit,
        kill::a_killed_process_leaves_every_decision_it_printed,
        ledger::a_row_that_does_not_follow_its_buckets_head_is_refused,
    );
    on!(apart [Postgres, MySql, MariaDb] =>
        capacity::leases_outlive_a_server_that_is_killed,
        kill::a_killed_server_keeps_every_decision_it_gave,
    );
    on!(apart [MySql, MariaDb] =>
        schema::a_binary_log_of_statements_is_refused_with_the_remedy,
        schema::what_is_made_does_not_depend_on_the_servers_settings,
        sessions::settings_of_the_server_leave_no_transaction_open,
    );
    on!(apart [Postgres] =>
        // A snapshot of anybody's keeps what was updated from being cleared away.
        hazards::h03_blocked_checks_leave_no_bloat_and_nothing_in_the_catalogue,
        kill::a_killed_server_keeps_what_was_durable_and_loses_only_the_last_of_what_was_relaxed,
        pgbouncer::four_hundred_decisions_through_a_transaction_pool_are_right,
    );

    on!([Postgres, MySql, MariaDb] =>
        engine::a_bucket_that_cannot_be_read_fails_alone,
        engine::a_bucket_that_is_taken_for_new_is_decided_as_what_it_is,
        engine::a_bucket_that_is_fought_over_is_held_from_the_first_look_on,
        engine::what_a_call_left_goes_with_the_next,
        engine::an_app_touches_no_table,
        engine::an_operators_act_is_one_and_by_its_own_name,
        engine::what_does_not_follow_is_refused_or_found,
        engine::what_is_remembered_is_never_believed_over_the_database,
        engine::what_it_cannot_do_says_what_is_lacking,
    );
    on!([MySql, MariaDb] =>
        engine::a_killed_statement_leaves_no_half_in_a_callers_transaction,
        engine::what_a_snapshot_hides_is_known_to_every_later_call,
    );
    on!([Postgres] =>
        engine::a_policy_that_changes_meanwhile_ends_no_callers_transaction,
    );
    on!(apart [Postgres, MySql, MariaDb] =>
        engine::sixteen_processes_by_both_ways_are_exact_and_nobody_starves,
    );

    // The core by itself: no database.
    macro_rules! core {
        ($($topic:ident::$test:ident),* $(,)?) => {
            $(trials.add(concat!("core::", stringify!($topic), "::", stringify!($test)).to_owned(), $topic::$test);)*
        };
    }
    core!(
        vectors::the_core_decides_every_vector_as_written,
        vectors::every_peer_vector_is_used_or_left_out_with_a_reason,
    );

    trials.add("core::citus::what_is_not_run_is_a_test".to_owned(), move || {
        citus::what_is_not_run_is_a_test(&of_postgres);
    });

    let code = trials.run(&arguments);
    runtime.block_on(server::stop_all());
    code
}
