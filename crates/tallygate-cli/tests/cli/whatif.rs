//! `tallygate backtest` beside a baseline, and with outcomes: who would newly be blocked, who freed, and who is who.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tallygate::policy::RunningBuckets;
use tallygate::testing::Clock;
use tallygate::{Check, Limiter, Policy};

use super::program::Program;

/// Traffic that is made here begins on 31 January 2026.
const START_S: u64 = 1_769_846_400;

pub const LOGINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/ssh_logins.csv");

/// A ledger of three weeks of payments: 50,000 cents a day for each card, and from the 17th on 30,000. The card 9f3c pays 9,000
/// six times a day, another one seldom.
fn payments(program: &Program) {
    let path = program.path("tallygate.db");
    let url = format!("sqlite:{}", path.display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let clock = Clock::at(time("2026-11-02T08:00:00Z"));
        let limiter = Limiter::connect(&url).await.unwrap().with_clock(&clock).unwrap();
        let day = Duration::from_secs(86_400);
        let cents = |rate| Policy::sliding_log(rate, day).unwrap().with_running_buckets(RunningBuckets::AsIs);
        limiter.operator().set_zone("payments", &cents(50_000), None, "erin").await.unwrap();
        for day in 0..21 {
            if day == 15 {
                limiter.operator().set_zone("payments", &cents(30_000), None, "erin").await.unwrap();
            }
            for hour in 0..6 {
                clock.advance(Duration::from_secs(1_800));
                limiter.check(Check::new("payments", "card:9f3c").cost(9_000)).await.unwrap();
                clock.advance(Duration::from_secs(1_800));
                if (day + hour) % 4 == 0 {
                    limiter.check(Check::new("payments", "card:77aa").cost(4_000)).await.unwrap();
                }
            }
            clock.advance(Duration::from_secs(18 * 3_600));
        }
    });
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The findings, by the names of the policies.
fn found(program: &Program, args: &str) -> Vec<(String, Value)> {
    let args: Vec<_> = args.split_whitespace().chain(["--format", "json"]).collect();
    let reports = program.run(&[&["backtest"], &args[..]].concat()).json();
    let named = |report: &Value| (report["name"].as_str().unwrap().to_owned(), report.clone());
    reports.as_array().unwrap().iter().map(named).collect()
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} of {report}"))
}

#[test]
fn the_policy_in_force_is_played_version_by_version_as_it_was_recorded() {
    let program = Program::new();
    payments(&program);
    let policy = "--from-ledger payments --rate 60000 --per 24h";
    for (part, versions) in [
        ("", vec![1, 2]),
        ("--key card:9f3c", vec![1, 2]),
        ("--since 2026-11-09T00:00:00Z --until 2026-11-16T00:00:00Z", vec![1]),
        ("--since 2026-11-16T00:00:00Z --until 2026-11-20T00:00:00Z", vec![1, 2]),
        ("--key card:9f3c --since 2026-11-17T12:00:00Z", vec![1, 2]),
    ] {
        let found = found(&program, &format!("{policy} {part}"));
        let [(name, in_force), (_, laxer)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((name.as_str(), &in_force["baseline"]), ("in force", &true.into()), "{part}");
        assert_eq!(in_force["versions"], serde_json::json!(versions), "{part}");
        assert_eq!(count(in_force, "blocked"), count(in_force, "recorded_blocked"), "{part}");
        assert!(count(in_force, "blocked") > 0, "{part}");
        let span = |name: &str| part.split_once(name).map(|(_, rest)| time(rest.split(' ').nth(1).unwrap()));
        assert!(span("--since").is_none_or(|since| time(in_force["first_at"].as_str().unwrap()) >= since));
        assert!(span("--until").is_none_or(|until| time(in_force["last_at"].as_str().unwrap()) < until));
        let freed = count(&laxer["freed"], "checks");
        assert_eq!(count(in_force, "blocked") - freed, count(laxer, "blocked"), "{part}");
        assert_eq!(laxer["freed"]["top"][0]["key"], "card:9f3c", "{part}");
        assert_eq!((count(&laxer["newly_blocked"], "checks"), count(&laxer["freed"], "keys")), (0, 1));
        assert_eq!(in_force["freed"], Value::Null);
    }
    // The checks of the day before are looked back on and not counted.
    let week =
        found(&program, &format!("{policy} --since 2026-11-04T00:00:00Z --until 2026-11-05T00:00:00Z"));
    assert_eq!((count(&week[0].1, "events"), count(&week[0].1, "blocked")), (7, 1));
}

#[test]
fn refunds_are_not_played_and_the_text_says_so() {
    let program = Program::with_login();
    for _ in 0..6 {
        let decision = program.run(&["check", "login", "ann", "--format", "json"]).json();
        program.ok(&["refund", decision["txn_id"].as_str().unwrap()]);
    }
    let text = program.ok(&["backtest", "--from-ledger", "login", "--rate", "3", "--per", "60s"]);
    assert!(text.contains("When they were recorded, 0 were blocked"), "{text}");
    let none = found(&program, "--from-ledger login --rate 3 --per 60s --baseline none");
    assert_eq!((none.len(), &none[0].1["baseline"], &none[0].1["freed"]), (1, &false.into(), &Value::Null));
    let unknown = ["backtest", "--from-ledger", "login", "--key", "bob", "--rate", "3", "--per", "60s"];
    program.run(&unknown).assert_refused("zone \"login\" has no row of key \"bob\"; list the keys");
    let nothing = "--from-ledger login --key ann --since 2001-01-01T00:00:00Z --until 2002-01-01T00:00:00Z";
    assert_eq!(count(&found(&program, &format!("{nothing} --rate 3 --per 60s"))[1].1, "events"), 0);
}

/// Decides all events by each policy, and compares the decisions one by one.
#[test]
fn who_is_newly_blocked_and_who_freed_is_what_a_count_by_hand_says() {
    let program = Program::new();
    let mut args = vec!["backtest", LOGINS, "--key-column", "ip", "--format", "json", "--top", "1000"];
    args.extend([
        "--policy",
        "usual=5 per 10m",
        "--policy",
        "strict=token-bucket 3 per 10m",
        "--baseline",
        "usual",
    ]);
    let reports = program.run(&args).json();
    assert_eq!([&reports[0]["name"], &reports[1]["name"]], ["usual", "strict"]);
    let minutes = Duration::from_secs(600);
    let policies = [Policy::sliding_log(5, minutes), Policy::token_bucket(3, minutes, None)];
    let mut tests = policies.map(|policy| tallygate::backtest::Backtest::new(policy.unwrap()).unwrap());
    let mut changes = [std::collections::BTreeMap::new(), std::collections::BTreeMap::new()];
    for line in std::fs::read_to_string(LOGINS).unwrap().lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let ask = tallygate::decide::Ask { cost: 1, ..Default::default() };
        let at_us = time(columns[0]).timestamp_micros();
        let [usual, strict] =
            tests.each_mut().map(|test| !test.check(columns[1], &ask, at_us).unwrap().reason.allows());
        if usual != strict {
            *changes[usize::from(usual)].entry(columns[1].to_owned()).or_insert(0_u64) += 1;
        }
    }
    for (name, expected) in ["newly_blocked", "freed"].into_iter().zip(changes) {
        let changed = &reports[1][name];
        let top = changed["top"].as_array().unwrap();
        let keys = top.iter().map(|key| (key["key"].as_str().unwrap().to_owned(), count(key, "checks")));
        assert_eq!(keys.collect::<std::collections::BTreeMap<_, _>>(), expected, "{name}");
        assert_eq!(count(changed, "checks"), expected.values().sum::<u64>());
        assert_eq!(count(changed, "keys"), expected.len() as u64);
        for key in top {
            let [baseline, policy] = [0, 1].map(|n: usize| tests[n].blocked(key["key"].as_str().unwrap()));
            assert_eq!((count(key, "blocked_by_baseline"), count(key, "blocked")), (baseline, policy));
        }
    }
    assert!(count(&reports[1]["newly_blocked"], "checks") > 0, "there is something to compare");

    args.truncate(4);
    args.extend([
        "--policy",
        "strict=3 per 10m",
        "--policy",
        "lax=9 per 10m",
        "--baseline",
        "usual=5 per 10m",
        "--top",
        "1",
    ]);
    let text = program.ok(&args);
    for part in
        ["usual: sliding-log 5 per 10m", "Newly blocked, by key", "Freed, by key", "Blocked most, by key"]
    {
        assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("strict  ")).count(), 1, "{text}");
}

#[test]
fn outcomes_tell_whom_a_policy_hits_and_whom_it_stops() {
    let program = Program::new();
    let mut events = String::from("at,key,outcome\n");
    // The attacker comes every second, a person three times in a minute; the outcome of one attempt is not known.
    for second in 0..60 {
        events += &format!("{},evil,failed\n", START_S + second);
        if second % 20 == 0 {
            events += &format!("{},ann,accepted\n", START_S + second);
        }
    }
    events += &format!("{},evil,\n", START_S + 60);
    std::fs::write(program.path("e.csv"), &events).unwrap();
    let outcomes = "e.csv --outcome-column outcome --good accepted";
    let found = found(&program, &format!("{outcomes} --per 60s --sweep rate=1..3:2"));
    let outcome = |n: usize| found[n].1["outcomes"].clone();
    let assert_outcome = |n: usize, hit: u64, stopped: u64| {
        let outcome = outcome(n);
        let counts =
            ["legitimate", "legitimate_hit", "attacks", "attacks_stopped"].map(|name| count(&outcome, name));
        assert_eq!(counts, [3, hit, 60, stopped]);
        let [all, hits, stops] = [hit + stopped, hit, stopped].map(|count| count as f64);
        for (name, part) in [("hit", hits / 3.0), ("precision", stops / all), ("recall", stops / 60.0)] {
            assert!((outcome[name].as_f64().unwrap() - part).abs() < 1e-9, "{name} of {outcome}");
        }
    };
    assert_outcome(0, 2, 59);
    assert_outcome(1, 0, 57);
    let text = program.ok(&format!("backtest {outcomes} --rate 1 --per 60s").split(' ').collect::<Vec<_>>());
    for part in ["Legitimate attempts that are hit", "2 of 3", "66.7 %", "59 of 60", "98.3 %", "96.7 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: String = events
        .lines()
        .skip(1)
        .map(|line| {
            let [at, key, outcome] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            format!("{{\"at\":{at},\"key\":\"{key}\",\"outcome\":\"{outcome}\"}}\n")
        })
        .collect();
    std::fs::write(program.path("e.jsonl"), json).unwrap();
    let lines = self::found(&program, &format!("{} --rate 1 --per 60s", outcomes.replace("csv", "jsonl")));
    assert_eq!(lines[0].1["outcomes"], outcome(0));
    let none = self::found(&program, "e.csv --rate 1 --per 60s");
    assert_eq!(none[0].1["outcomes"], Value::Null);
    let both = format!("{outcomes} --good failed --rate 1 --per 60s");
    assert_eq!(count(&self::found(&program, &both)[0].1["outcomes"], "attacks"), 0);
}

/// Attempts of people and of attackers who are known: one is fast, one comes in bursts from where people are, one is patient.
fn attacks(program: &Program) {
    let mut events: Vec<(u64, &str, &str)> = Vec::new();
    events.extend((0..200).map(|n| (3_000 + n, "fast", "failed")));
    events.extend((0..60).map(|n| (1_200 * (n / 6) + n % 6, "office", "failed")));
    events.extend((0..100).map(|n| (70 * n, "patient", "failed")));
    events.extend((0..60).map(|n| (110 * n + 3, "office", "accepted")));
    events.extend((0..12).map(|n| (600 * n + 30, "ann", "accepted")));
    events.sort_unstable();
    let lines = events.iter().map(|(at, key, outcome)| format!("{},{key},{outcome}\n", START_S + at));
    std::fs::write(program.path("attacks.csv"), format!("at,key,outcome\n{}", lines.collect::<String>()))
        .unwrap();
}

#[test]
fn what_is_suggested_is_what_a_search_of_all_policies_finds() {
    let program = Program::new();
    attacks(&program);
    let outcomes = "attacks.csv --outcome-column outcome --good accepted";
    let grid = "--algorithms sliding-log,token-bucket --rates 1..9:2 --windows 1m,10m,1h";
    let front = found(&program, &format!("suggest {outcomes} {grid}"));
    let mut all =
        format!("backtest {outcomes} --format json").split(' ').map(str::to_owned).collect::<Vec<_>>();
    for algorithm in ["sliding-log", "token-bucket"] {
        for window in ["1m", "10m", "1h"] {
            for rate in (1..=9).step_by(2) {
                all.extend(["--policy".to_owned(), format!("{algorithm} {rate} per {window}")]);
            }
        }
    }
    let reports = program.run(&all).json();
    let reports = reports.as_array().unwrap();
    assert_eq!(reports.len(), 30);
    let point = |report: &Value| {
        let outcomes = &report["outcomes"];
        (count(outcomes, "legitimate_hit"), count(outcomes, "attacks_stopped"))
    };
    let is_better = |a: (u64, u64), b: (u64, u64)| a != b && a.0 <= b.0 && a.1 >= b.1;
    let best = reports.iter().filter(|one| !reports.iter().any(|other| is_better(point(other), point(one))));
    let names = |report: &Value| report["name"].as_str().unwrap().to_owned();
    let best: std::collections::BTreeSet<_> = best.map(names).collect();
    assert_eq!(front.iter().map(|(name, _)| name.clone()).collect::<std::collections::BTreeSet<_>>(), best);
    let points: Vec<_> = front.iter().map(|(_, report)| point(report)).collect();
    assert!(points.is_sorted() && points.first() != points.last(), "{points:?}");

    let args = format!("backtest suggest {outcomes} {grid} --html front.html");
    let text = program.ok(&args.split(' ').collect::<Vec<_>>());
    assert!(text.contains("Of 30 policies no other stops more"), "{text}");
    for (name, _) in points.iter().zip(text.lines().skip(1)) {
        assert!(
            text.contains(&format!("{} of 72", name.0)) && text.contains(&format!("{} of 360", name.1)),
            "{text}"
        );
    }
    let page = std::fs::read_to_string(program.path("front.html")).unwrap();
    let (hit, stopped) = points[0];
    let title = format!("<title>{}: hits {hit} of 72, stops {stopped} of 360</title>", front[0].0);
    assert!(page.contains(&title), "{title}: {page}");
    assert_eq!(page.matches("<figure").count(), 1);

    // Of few, a share is chance.
    let few = format!("at,key,outcome\n{START_S},ann,accepted\n{START_S},fast,failed\n");
    std::fs::write(program.path("few.csv"), few).unwrap();
    let args = "backtest suggest few.csv --outcome-column outcome --good accepted --html few.html";
    let few = program.ok(&args.split(' ').collect::<Vec<_>>());
    let warning = "These numbers say little: of 1 legitimate attempts and 1 attacks one kind is below 30.";
    assert!(few.contains(warning) && !text.contains("say little"), "{few}");
    assert!(std::fs::read_to_string(program.path("few.html")).unwrap().contains(warning));
}

#[test]
fn what_cannot_be_suggested_is_one_error_line() {
    let program = Program::new();
    attacks(&program);
    let outcomes = "attacks.csv --outcome-column outcome --good accepted";
    for (flags, because) in [
        ("attacks.csv", "name with --outcome-column where they are"),
        ("attacks.csv --outcome-column outcome", "--good"),
        ("attacks.csv --outcome-column result --good accepted", "no column \"result\""),
        ("attacks.csv --outcome-column outcome --good acepted", "where there is accepted, failed"),
        (&format!("{outcomes} --rates 0"), "token-bucket 0 per 10s: rate 0"),
        (&format!("{outcomes} --rates many"), "rate \"many\" cannot be used"),
        (&format!("{outcomes} --windows 10"), "window \"10\" cannot be used"),
        (&format!("{outcomes} --rates 1..1000"), "too many at once"),
        (&format!("{outcomes} --algorithms bucket"), "bucket"),
        (&format!("{outcomes} --html no/such/page.html"), "no such directory"),
    ] {
        let args: Vec<_> = "backtest suggest".split(' ').chain(flags.split(' ')).collect();
        program.run(&args).assert_refused(because);
    }
}

#[test]
fn one_page_answers_one_question() {
    let program = Program::new();
    attacks(&program);
    let page = |flags: &str| {
        let args =
            format!("backtest attacks.csv --outcome-column outcome --good accepted --html page.html {flags}");
        program.ok(&args.split(' ').collect::<Vec<_>>());
        std::fs::read_to_string(program.path("page.html")).unwrap()
    };
    let several =
        page("--baseline usual=rate=5,per=10m --policy strict=rate=2,per=10m --policy lax=rate=9,per=10m");
    assert_eq!(several.matches("<figure").count(), 2, "over time, and whom they hit");
    assert_eq!(several.matches("<polyline").count(), 3 + 3, "a line for each policy");
    for part in [
        "<title>Back-test of attacks.csv</title>",
        "usual (baseline)",
        "strict",
        "lax",
        "Newly blocked, by key",
        "Freed, by key",
    ] {
        assert!(several.contains(part), "{part}");
    }
    let first = "<title>2026-01-31 08:00:00; usual: ";
    assert!(several.contains(first) && several.contains("; strict: "), "a value for each mark");
    let swept = page("--per 10m --sweep rate=1..9:2 --baseline rate=5,per=10m");
    assert_eq!(swept.matches("<figure").count(), 3, "the share, the keys, and whom they hit");
    for part in ["by rate", "baseline: sliding-log 5 per 10m", "<title>sliding-log 9 per 10m: "] {
        assert!(swept.contains(part), "{part}");
    }
    for page in [several, swept] {
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}

/// Each command of the document that has its answer below it. A line `…` stands for any number of lines.
#[test]
fn the_document_shows_what_is_printed() {
    let program = Program::new();
    payments(&program);
    std::fs::copy(LOGINS, program.path("logins.csv")).unwrap();
    let document = include_str!("../../../../docs/backtest.md").replace("```\n\n```text\n", "```answer\n");
    let mut shown = 0;
    let mut others = Vec::new();
    for block in document.split("```sh\n").skip(1) {
        let Some((command, rest)) = block.split_once("```answer\n") else { continue };
        if command.contains("```") {
            continue;
        }
        let (answer, _) = rest.split_once("```").unwrap();
        let ran = program.shell(command).output().unwrap();
        let printed = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        if !is_shown(&printed, answer) {
            others.push(format!("{command}prints\n{printed}and the document says\n{answer}"));
        }
        shown += 1;
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(shown >= 6, "only {shown} answers were found: the reading is at fault");
}

fn is_shown(printed: &str, answer: &str) -> bool {
    let mut rest = printed;
    let mut parts = answer.split("…\n");
    let first = parts.next().unwrap_or_default();
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    let mut elided = false;
    for part in parts {
        elided = true;
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    elided || rest.is_empty()
}
