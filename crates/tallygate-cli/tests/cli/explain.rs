//! `tallygate audit explain` as people ask it: by a key, by a time, for a person who has to answer.

use std::time::Duration;

use tallygate::policy::{BanRule, Mode, Override};
use tallygate::{Check, Policy};

use super::past::Past;
use super::program::{Program, Ran};

const MINUTE: Duration = Duration::from_secs(60);

/// One login an hour; two blocked within 10 minutes are a ban of 15, of 30 the second time, of 40 at most.
fn banned(program: &Program) -> Past {
    let mut past = Past::of(program);
    let rule =
        BanRule { factor: 2, longest_us: 40 * 60_000_000, ..BanRule::new(2, 10 * MINUTE, 15 * MINUTE) };
    let policy = Policy::sliding_log(1, 60 * MINUTE).unwrap().with_ban(Some(rule));
    past.wait(past.limiter.operator().set_zone("login", &policy, None, "erin"));
    for time in ["09:00:00", "09:00:01", "09:00:02.5", "09:05:00", "09:16:00", "09:16:01", "09:20:00"] {
        past.at(&format!("2026-11-22T{time}Z"));
        past.check(Check::new("login", "user:42"));
    }
    past
}

fn explain(program: &Program, more: &[&str]) -> Ran {
    program.run(&[&["audit", "explain"], more].concat())
}

#[track_caller]
fn assert_says(ran: &Ran, all: &[&str]) {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for words in all {
        assert!(ran.out.contains(words), "{words:?} is not in\n{}", ran.out);
    }
}

#[test]
fn a_decision_is_found_by_its_key_and_a_time_as_people_type_it() {
    let program = Program::new();
    let mut past = banned(&program);
    past.check(Check::new("login", "user:43"));
    past.end();
    let key = ["--key", "user:42"];
    let last = "login / user:42  BLOCKED  2026-11-22 09:20:00 UTC  row 9\n";
    assert_says(&explain(&program, &key), &[last]);
    assert_says(&explain(&program, &["--zone", "login", "--key", "user:42"]), &[last]);
    for (at, row) in [
        ("2026-11-22 09:00", "ALLOWED  2026-11-22 09:00:00 UTC  row 1\n"),
        ("2026-11-22 09:00:01", "BLOCKED  2026-11-22 09:00:01 UTC  row 2\n"),
        // A time that is shown to the second is found by the second.
        ("2026-11-22 09:00:02 UTC", "BLOCKED  2026-11-22 09:00:02 UTC  row 3\n"),
        ("2026-11-22T09:00:02Z", "BLOCKED  2026-11-22 09:00:02 UTC  row 3\n"),
        ("2026-11-22T09:00:02.4Z", "BLOCKED  2026-11-22 09:00:01 UTC  row 2\n"),
        ("2026-11-22", "BLOCKED  2026-11-22 09:20:00 UTC  row 9\n"),
        ("1m", "BLOCKED  2026-11-22 09:20:00 UTC  row 9\n"),
    ] {
        let ran = explain(&program, &[&key[..], &["--at", at]].concat());
        // The whole minute, to its end, has more.
        let row = if at == "2026-11-22 09:00" { "BLOCKED  2026-11-22 09:00:02 UTC  row 3\n" } else { row };
        assert_says(&ran, &[&format!("login / user:42  {row}")]);
    }
    let there = ["--at", "2026-11-22 10:16", "--time-zone", "Europe/Berlin"];
    let ran = explain(&program, &[&key[..], &there].concat());
    assert_says(&ran, &["2026-11-22 10:16:01 CET  row 7\n", "since 2026-11-20 09:00:00 CET"]);
    for (args, because) in [
        (&["--key", "user:43"][..], "nothing was ever blocked of key \"user:43\" in any zone"),
        (&["--key", "user:43", "--zone", "login"], "in zone \"login\"; name a time with --at"),
        (&["--key", "user:42", "--at", "2026-11-21"], "up to 2026-11-21 23:59:59 UTC"),
        (&["--key", "user:42", "--zone", "nowhere"], "there is no zone \"nowhere\""),
        (&["--key", "user:42", "--at", "tomorrow"], "yesterday"),
        (&["--zone", "login"], "--key"),
        (&[], "TXN"),
        (&["019ae3f2-7a55-7c1e-9d0b-000000000001", "--key", "a"], "--key"),
    ] {
        explain(&program, args).assert_refused(because);
    }
}

#[test]
fn a_ban_is_explained_by_its_blocked_checks_and_its_length() {
    let program = Program::new();
    banned(&program).end();
    let first = explain(&program, &["--key", "user:42", "--at", "2026-11-22 09:05"]);
    assert_says(
        &first,
        &[
            "It was blocked, since the bucket was banned: brought about by transaction \
             019ae3f2-7a55-7c1e-9d0b-000000000003 at 2026-11-22 09:00:02 UTC, until 2026-11-22 09:15:03 UTC.\n",
            "2 blocked checks within 10m brought it about: the zone bans after 2.\n",
            "It lasts 15m, as a first ban of this zone does.\n",
            "  The checks that brought it about:\n    blocked at               transaction\n    \
             2026-11-22 09:00:01 UTC  019ae3f2-7a55-7c1e-9d0b-000000000002\n    \
             2026-11-22 09:00:02 UTC  019ae3f2-7a55-7c1e-9d0b-000000000003\n",
        ],
    );
    assert!(!first.out.contains("counted"), "{}", first.out);
    let second = explain(&program, &["--key", "user:42", "--at", "2026-11-22 09:16"]);
    let why = "It lasts 30m, since it is the second ban in a row: the one before it ended at 2026-11-22 09:15:02 UTC, \
               no more than 40m before it began, and each takes 2 times as long as the one before: 15m x 2 = 30m.\n";
    assert_says(
        &second,
        &[
            "It was the last of the blocked checks that brought about a ban, the next row.\n",
            "BAN  2026-11-22 09:16:01 UTC  row 8\n",
            "Blocked checks brought about a ban, until 2026-11-22 09:46:01 UTC.\n",
            why,
        ],
    );
    let json = explain(&program, &["--key", "user:42", "--format", "json"]).json();
    let cause = &json["rows"][0]["ban"]["cause"];
    assert_eq!((&cause["number"], &cause["blocked"]), (&2.into(), &2.into()));
    assert_eq!(cause["length_us"], 1_800_000_000_i64);
    assert_eq!(cause["checks"][0]["txn_id"], "019ae3f2-7a55-7c1e-9d0b-000000000005");
    assert!(json["in_words"][0].to_string().contains("15m x 2 = 30m"));
}

#[test]
fn a_ban_is_no_longer_than_the_longest() {
    let program = Program::new();
    let mut past = banned(&program);
    for time in ["09:50:00", "09:50:01"] {
        past.at(&format!("2026-11-22T{time}Z"));
        past.check(Check::new("login", "user:42"));
    }
    past.end();
    let cut = "It lasts 40m, since it is the third ban in a row: ";
    let sum = "15m x 2 x 2 is more than 40m, which is the longest.\n";
    assert_says(&explain(&program, &["--key", "user:42"]), &[cut, sum]);
}

#[test]
fn what_people_set_is_explained_by_who_set_it_and_what_came_of_it() {
    let program = Program::new();
    let past = Past::of(&program);
    let policy = Policy::sliding_log(5, MINUTE).unwrap();
    past.wait(past.limiter.operator().set_zone("login", &policy, None, "erin"));
    let own = Override { limit: None, ban_exempt: true, for_us: None };
    past.at("2026-11-22T09:00:00Z");
    let own = past.wait(past.limiter.operator().set_override("login", "a", own, "a partner", "frank"));
    let (txn, about) = (own.txn_id.to_string(), "The bucket got a limit of its own by frank: a partner.\n");
    let unused = explain(&program, &[&txn]);
    assert_says(&unused, &[about, "It is the zone's limit, but no bans, for good.\n", "No check has been"]);
    past.at("2026-11-22T10:00:00Z");
    past.wait(past.limiter.check(Check::new("login", "a")));
    past.wait(past.limiter.operator().ban("login", "b", 2 * MINUTE, "a \u{202e}joke\u{1b}[2J", "gina"));
    let used = "The last check that was decided by it was at 2026-11-22 10:00:00 UTC.\n";
    assert_says(&explain(&program, &[&txn]), &[about, used]);
    assert_says(
        &explain(&program, &["--key", "a", "--at", "1m"]),
        &["set by frank at 2026-11-22 09:00:00 UTC"],
    );
    // A ban is a block, though no check has met it yet.
    let ban = explain(&program, &["--key", "b"]);
    let said =
        "The bucket was banned by gina for 2m, until 2026-11-22 10:02:00 UTC: a \\u{202e}joke\\u{1b}[2J.\n";
    assert_says(&ban, &["login / b  BAN  ", said]);
    past.end();
}

/// A stranger who chooses a key writes onto the terminal of the person who looks it up.
#[test]
fn a_forged_key_harms_no_terminal() {
    let program = Program::new();
    let mut past = Past::of(&program);
    let policy = Policy::sliding_log(1, MINUTE).unwrap();
    past.wait(past.limiter.operator().set_zone("login", &policy, None, "erin"));
    // No key has a control character, but a person who asks may type one.
    explain(&program, &["--key", "a\u{1b}[2J"]).assert_refused("a\\u{1b}[2J");
    let key = "<b>\u{202e}\u{200b}\u{2066}'$(reboot)";
    past.check(Check::new("login", key));
    let harms = |text: &str| text.chars().any(|c| "\u{202e}\u{200b}\u{2066}".contains(c));
    let none = explain(&program, &["--key", key]);
    none.assert_refused("nothing was ever blocked of key");
    assert!(!harms(&none.err), "{:?}", none.err);
    past.check(Check::new("login", key).cost(2));
    past.end();
    let found = explain(&program, &["--key", key]);
    assert_says(&found, &["login / <b>\\u{202e}\\u{200b}\\u{2066}'$(reboot)  BLOCKED"]);
    assert!(!harms(&found.out));
    let listed = program.ok(&["history", "--key", key]);
    assert!(listed.lines().count() == 3 && !harms(&listed), "{listed:?}");
}

/// A sentence for each kind of reason.
#[test]
fn a_customer_is_told_in_a_sentence_that_gives_nothing_away() {
    let program = Program::new();
    let mut past = Past::of(&program);
    let day = 24 * 60 * MINUTE;
    let zones = [
        ("amount", Policy::sliding_log(7_919, day).unwrap()),
        ("soft", Policy::sliding_log(7_919, day).unwrap().with_soft_rate(Some(1))),
        ("watched", Policy::sliding_log(1, day).unwrap().with_mode(Mode::Shadow)),
        ("slots", Policy::concurrency(1, day).unwrap()),
        ("logins", Policy::sliding_log(1, day).unwrap().with_ban(Some(BanRule::new(1, day, 7_919 * MINUTE)))),
    ];
    for (zone, policy) in zones {
        past.wait(past.limiter.operator().set_zone(zone, &policy, None, "erin"));
    }
    past.at("2026-11-22T03:00:23.9Z");
    let mut told = Vec::new();
    let made = "Your request of 2026-11-22 03:00 UTC was";
    let again = "; it can be made again from 2026-11-23 03:01 UTC on, at the earliest.";
    for (zone, cost, said) in [
        ("amount", 7_000, format!("{made} accepted.")),
        (
            "amount",
            1_000,
            format!("{made} declined, since it was more than is accepted within a certain time{again}"),
        ),
        ("amount", 9_000, format!("{made} declined, since it asks for more than can be accepted at once.")),
        ("soft", 2, format!("{made} accepted.")),
        ("watched", 1, format!("{made} accepted.")),
        ("watched", 1, format!("{made} accepted.")),
        ("slots", 1, format!("{made} accepted.")),
        (
            "slots",
            1,
            format!(
                "{made} declined, since too much was being worked on at that moment; it can be made again at any time."
            ),
        ),
        ("logins", 1, format!("{made} accepted.")),
    ] {
        told.push((past.check(Check::new(zone, "card:secret").cost(cost)).txn_id, said));
    }
    let banned = "it can be made again from 2026-11-27 15:00 UTC on, at the earliest.";
    let over = format!("{made} declined, since it was more than is accepted within a certain time; {banned}");
    let under =
        format!("{made} declined, since requests like it are not accepted for the time being; {banned}");
    for said in [over, under] {
        told.push((past.check(Check::new("logins", "card:secret")).txn_id, said));
    }
    // Of several limits, the one that is to blame is told of, but not by its name.
    let txn = past.txn();
    let both = ["card:free", "card:secret"].map(|key| Check::new("amount", key).cost(1_000).txn(txn));
    past.wait(past.limiter.check_all(both.to_vec()));
    told.push((txn, told[1].1.clone()));
    let ban = past.wait(past.limiter.operator().ban("amount", "card:secret", day, "a thief", "frank"));
    told.push((ban.txn_id, "Requests like yours are not accepted before 2026-11-23 03:01 UTC.".to_owned()));
    let lifted = past.wait(past.limiter.operator().unban("amount", "card:secret", "no thief", "frank"));
    told.push((lifted.txn_id, "There is nothing in this that concerns a request of yours.".to_owned()));
    past.end();
    for (txn, said) in told {
        let (txn, reader) = (txn.to_string(), ["--for", "customer"]);
        assert_eq!(explain(&program, &[&[&*txn], &reader[..]].concat()).out, format!("{said}\n"));
        let json = explain(&program, &[&[&*txn, "--format", "json"], &reader[..]].concat()).json();
        assert_eq!(json, serde_json::json!({ "txn_id": txn, "for_customer": said }));
        let whole = explain(&program, &[&txn, "--format", "json"]).json();
        assert_eq!(whole["for_customer"], said);
        for secret in ["7919", "7,919", "amount", "secret", "free", "thief", "frank", "erin", "soft", "limit"]
        {
            assert!(!said.contains(secret), "{said}");
        }
    }
}
