//! The fate of a bucket when its policy changes, or a limit of its own begins or ends.

use std::time::Duration;

use proptest::prelude::*;
use tallygate::decide::Event;
use tallygate::policy::{Limit, Override, RunningBuckets};
use tallygate::{Policy, Reason};

use crate::book::{Book, ask};
use crate::cases;
use crate::input::{
    Done, Kind, Play, any_kind, any_policy, bare, checks, deeds, dressed, gcd, is_level, is_window, start,
    up_to,
};
use crate::naive::Naive;

const SECOND_US: i64 = 1_000_000;

/// A policy with options and a way to treat the buckets in use.
pub fn changing() -> impl Strategy<Value = Policy> {
    (any_kind().prop_flat_map(dressed), proptest::sample::select(RunningBuckets::ALL))
        .prop_map(|(policy, running)| policy.with_running_buckets(running))
}

fn window() -> impl Strategy<Value = Policy> {
    let kinds = [Kind::SlidingLog, Kind::FixedWindow, Kind::SlidingCounter(None)];
    proptest::sample::select(kinds.to_vec()).prop_flat_map(bare)
}

fn level() -> impl Strategy<Value = Policy> {
    let kinds = [Kind::TokenBucket, Kind::LeakyBucket, Kind::LeakyQueue, Kind::Uniform];
    proptest::sample::select(kinds.to_vec()).prop_flat_map(bare)
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_peek_spends_nothing_and_is_always_allowed(policy in any_kind().prop_flat_map(dressed), steps in deeds()) {
        let mut play = Play::new(policy, 0);
        for step in steps {
            play.step(step);
            let peek = play.book.peek(play.now_us);
            prop_assert_eq!((peek.blocked, peek.spent, peek.retry_after_us), (false, 0, None));
            prop_assert_eq!(peek.head.spent_total, play.book.head.spent_total);
            prop_assert_eq!(peek.hold(None), None);
            prop_assert!(peek.head.level.is_some() || !is_level(&policy));
        }
    }

    #[test]
    fn the_same_events_always_lead_to_the_same_head(
        policies in proptest::collection::vec(changing(), 1..4), steps in deeds(), start_us in start()
    ) {
        let fold = || {
            let mut play = Play::new(policies[0], start_us);
            let mut heads = Vec::new();
            for (n, &step) in steps.iter().enumerate() {
                if n % 5 == 4 {
                    play.book.set(policies[n % policies.len()], play.now_us);
                }
                play.step(step);
                heads.push(play.book.head);
            }
            (heads, play.book)
        };
        let ((once, book), (twice, _)) = (fold(), fold());
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(book.rows.len() as i64, book.head.seq);
        prop_assert!(book.rows.is_sorted_by_key(|row| row.at_us));
        let mut total = 0;
        for row in &book.rows {
            total += row.spent;
            prop_assert_eq!(row.spent_total, total);
        }
    }

    #[test]
    fn a_clock_that_goes_backwards_stands_still(
        policy in any_kind().prop_flat_map(dressed), steps in deeds(), back_us in up_to(i64::MAX)
    ) {
        let mut play = Play::new(policy, 0);
        for step in steps {
            play.step(step);
            if play.book.head.seq > 0 {
                let ask = step.ask(&policy);
                let back = play.book.ask(&ask, play.now_us.saturating_sub(back_us));
                let last_us = play.book.head.last_us;
                prop_assert_eq!(back, play.book.ask(&ask, last_us.max(play.now_us.saturating_sub(back_us))));
            }
        }
    }

    #[test]
    fn a_change_of_policy_keeps_whole_tokens_up_to_the_new_capacity(
        policies in proptest::collection::vec(level(), 2..5), steps in checks()
    ) {
        let mut play = Play::new(policies[0], 0);
        for (n, &step) in steps.iter().enumerate() {
            play.step(step);
            if n % 3 == 2 {
                play.now_us += steps[n - 1].elapsed_us(play.book.policy().window_us(), None);
                let before = play.book.peek(play.now_us).remaining;
                let policy = policies[n % policies.len()];
                play.book.set(policy, play.now_us);
                prop_assert_eq!(play.book.peek(play.now_us).remaining, before.min(policy.limit()));
            }
        }
    }

    #[test]
    fn windows_judge_what_was_spent_by_the_policy_in_force(
        policies in proptest::collection::vec(window(), 2..5), steps in deeds(), start_us in start()
    ) {
        let mut play = Play::new(policies[0], start_us);
        let mut naive = Naive::new(policies[0]);
        for (n, &step) in steps.iter().enumerate() {
            if n % 4 == 3 {
                naive.policy = policies[n % policies.len()];
                play.book.set(naive.policy, play.now_us);
            }
            match play.step(step) {
                Done::Checked(ask, outcome) => {
                    let told = naive.check(&ask, play.now_us, play.book.head.seq);
                    prop_assert_eq!(outcome.reason, told.reason);
                    prop_assert_eq!(outcome.remaining, told.remaining);
                    prop_assert_eq!(outcome.retry_after_us, told.retry_after_us);
                }
                Done::Ended { seq, kept, extra } => {
                    naive.end(seq, kept, extra, play.now_us, play.book.head.seq);
                }
                Done::Banned(for_us) => naive.ban(play.now_us + for_us),
                Done::Unbanned => naive.unban(),
                Done::Nothing => {}
            }
        }
    }

    /// Nothing of the time before counts, and nothing of it comes back.
    #[test]
    fn after_a_reset_a_bucket_is_as_one_that_was_never_used(
        before in any_policy(), after in any_policy(), first in deeds(), then in checks()
    ) {
        let after = after.with_running_buckets(RunningBuckets::Reset);
        let mut play = Play::new(before, 0);
        for step in first {
            // Bans are no charges: a reset keeps them.
            if step.deed != 19 {
                play.step(step);
            }
        }
        play.book.set(after, play.now_us);
        play.promised_us = None;
        let mut fresh = Play::new(after, play.now_us);
        for step in then {
            let (used, new) = (play.step(step), fresh.step(step));
            let (Done::Checked(_, used), Done::Checked(_, new)) = (used, new) else { unreachable!() };
            prop_assert_eq!(
                (used.reason, used.remaining, used.retry_after_us, used.delay_us),
                (new.reason, new.remaining, new.retry_after_us, new.delay_us)
            );
        }
    }

    #[test]
    fn a_proportional_change_keeps_the_share_that_is_left(
        before in prop_oneof![window(), level()], after in prop_oneof![window(), level()], steps in checks()
    ) {
        let after = after.with_running_buckets(RunningBuckets::Proportional);
        let mut play = Play::new(before, 0);
        for step in steps {
            play.step(step);
        }
        let old = play.book.peek(play.now_us).remaining;
        play.book.set(after, play.now_us);
        let new = i128::from(play.book.peek(play.now_us).remaining);
        // A level has fractions besides its whole tokens.
        let share = |left: i64| i128::from(left) * i128::from(after.limit()) / i128::from(before.limit());
        prop_assert!(new >= share(old) - i128::from(is_level(&before)), "{} of {}", old, before.limit());
        prop_assert!(new <= share(old + i64::from(is_level(&before))));
    }

    #[test]
    fn a_level_never_exceeds_its_capacity(
        policies in proptest::collection::vec(any_policy(), 2..6), steps in checks(), changes_us in any::<[i64; 8]>()
    ) {
        let mut play = Play::new(policies[0], 0);
        for (n, step) in steps.into_iter().enumerate() {
            if n % 4 == 3 {
                // Whenever a change claims to have been made, past and future included.
                play.book.set(policies[n % policies.len()], changes_us[n % 8]);
            }
            let Done::Checked(_, outcome) = play.step(step) else { unreachable!() };
            let policy = play.book.policy();
            prop_assert!((0..=policy.limit()).contains(&outcome.remaining));
            let per_token = policy.window_us() / gcd(policy.rate(), policy.window_us());
            prop_assert!(outcome.head.level.is_none_or(|level| (0..=policy.limit() * per_token).contains(&level)));
            prop_assert_eq!(outcome.head.level.is_some(), is_level(&policy));
        }
    }

    /// While it holds an override decides as a zone of its limit would, and at its end exactly the zone does again.
    #[test]
    fn an_override_stands_in_for_the_policy_until_its_end(
        policy in prop_oneof![window(), level()], steps in checks(), start_us in start(),
        (rate, window_us, burst) in (1..20i64, 1..200i64, 1..30i64), (from, length_us) in (0..20usize, 1..400i64)
    ) {
        let limit = Limit::new(rate, Duration::from_micros(window_us as u64), Some(burst)).unwrap();
        let mut play = Play::new(policy, start_us);
        let mut naive = Naive::new(policy);
        let mut until_us = None;
        for (n, &step) in steps.iter().enumerate() {
            if n == from {
                let over = Override { limit: Some(limit), ban_exempt: false, for_us: Some(length_us) };
                let happened = play.book.happen(Event::Override(Some(over)), play.now_us).unwrap();
                prop_assert_eq!(happened.ends_us, Some(play.now_us + length_us));
                until_us = happened.ends_us;
            }
            let Done::Checked(ask, outcome) = play.step(step) else { unreachable!() };
            let over = until_us.is_some_and(|until_us| play.now_us < until_us);
            prop_assert_eq!(outcome.head.exception.is_some(), over);
            if is_window(&policy) {
                // A window that is cut into slots stays as it is.
                let window_us = if policy.slots().is_some() { policy.window_us() } else { window_us };
                let window = Duration::from_micros(window_us as u64);
                let exact = Policy::new(policy.algorithm(), rate, window, None).unwrap().with_slots(policy.slots());
                naive.policy = if over { exact } else { policy };
                let told = naive.check(&ask, play.now_us, play.book.head.seq);
                prop_assert_eq!((outcome.reason, outcome.remaining), (told.reason, told.remaining));
                prop_assert_eq!(outcome.retry_after_us, told.retry_after_us);
            } else {
                prop_assert!(outcome.remaining <= outcome.limit);
                let uniform = policy.algorithm() == tallygate::policy::Algorithm::Uniform;
                prop_assert_eq!(outcome.limit, if over && !uniform { burst } else { policy.limit() });
            }
        }
    }
}

#[test]
fn an_override_ends_exactly_at_its_time() {
    let mut book = Book::new(Policy::token_bucket(2, Duration::from_secs(60), None).unwrap());
    book.spend(1, 0);
    let limit = Limit::new(60, Duration::from_secs(60), Some(10)).unwrap();
    let over = Override { limit: Some(limit), ban_exempt: false, for_us: Some(20 * SECOND_US) };
    book.happen(Event::Override(Some(over)), 0).unwrap();
    // The token that was there is kept; one comes each second, up to ten.
    assert_eq!(book.peek(0).remaining, 1);
    assert_eq!(book.peek(5 * SECOND_US).remaining, 6);
    assert_eq!(book.peek(20 * SECOND_US - 1).remaining, 10);
    assert_eq!(book.peek(20 * SECOND_US).remaining, 2, "at its end they are capped");
    // It can be taken away before.
    book.happen(Event::Override(None), 5 * SECOND_US).unwrap();
    assert_eq!((book.peek(5 * SECOND_US).remaining, book.peek(5 * SECOND_US).limit), (2, 2));
    assert!(book.happen(Event::Override(None), 5 * SECOND_US).unwrap_err().is_conflict());
}

#[test]
fn a_limit_of_a_bucket_lets_it_pass_where_others_are_blocked() {
    let mut book = Book::new(Policy::sliding_log(2, Duration::from_secs(60)).unwrap());
    book.spend(2, 0);
    assert_eq!(book.spend(1, 0).reason, Reason::OverLimit);
    let limit = Limit::new(5, Duration::from_secs(60), None).unwrap();
    let over = Override { limit: Some(limit), ban_exempt: false, for_us: None };
    book.happen(Event::Override(Some(over)), 0).unwrap();
    assert_eq!(book.spend(3, 0).remaining, 0);
    // Without it five of two are spent.
    book.happen(Event::Override(None), SECOND_US).unwrap();
    let blocked = book.ask(&ask(1), SECOND_US);
    assert_eq!((blocked.remaining, blocked.retry_after_us), (0, Some(59 * SECOND_US)));
}
