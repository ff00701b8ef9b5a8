//! `docs/questions.md` answers its questions: its commands are run, and their output is compared.
//!
//! With `TALLYGATE_GENERATE=1` the page is written anew with that output; look at the difference.

use std::path::Path;
use std::time::Duration;

use tallygate::policy::BanRule;
use tallygate::{Check, Policy};

use super::past::Past;
use super::program::{Program, Ran};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/questions.md");
const HOUR: Duration = Duration::from_secs(3_600);

/// Payments of a card and of another one, and logins of somebody who does not give up.
fn made_up(program: &Program) {
    let mut past = Past::of(program);
    let zone = |past: &Past, name: &str, policy: Policy, by: &str| {
        past.wait(past.limiter.operator().set_zone(name, &policy, None, by));
    };
    let ban = BanRule { factor: 2, longest_us: 24 * 3_600_000_000, ..BanRule::new(3, HOUR / 6, HOUR / 4) };
    zone(&past, "payments", Policy::sliding_log(40_000, 24 * HOUR).unwrap(), "erin");
    zone(&past, "shops", Policy::sliding_log(5, HOUR).unwrap(), "erin");
    zone(&past, "login", Policy::sliding_log(2, HOUR / 60).unwrap().with_ban(Some(ban)), "erin");
    past.at("2026-11-21T16:20:00Z");
    zone(&past, "payments", Policy::sliding_log(50_000, 24 * HOUR).unwrap(), "frank");
    for (time, cost) in [
        ("2026-11-21T18:02:11.204417Z", 20_000),
        ("2026-11-21T21:47:30.018Z", 15_000),
        ("2026-11-22T02:58:03.5Z", 10_000),
        ("2026-11-22T03:00:23.932570Z", 9_000),
    ] {
        past.at(time);
        past.check(Check::new("payments", "card:0061").cost(500));
        past.check(Check::new("payments", "card:9f3c").cost(cost));
    }
    past.at("2026-11-22T03:10:00Z");
    past.check(Check::new("shops", "card:9f3c"));
    for minute in [0, 16] {
        for second in 0..6 {
            past.at(&format!("2026-11-22T09:{minute:02}:{second:02}.25Z"));
            past.check(Check::new("login", "user:42"));
        }
    }
    past.end();
}

#[test]
fn each_question_is_answered_by_its_command_as_the_page_shows() {
    let program = Program::new();
    made_up(&program);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (answered, asked) =
        answer(&page, |line| program.shell(line).env("COLUMNS", "100").output().unwrap().into());
    assert!(asked >= 6, "only {asked} commands were found on the page");
    if std::env::var_os("TALLYGATE_GENERATE").is_some() {
        std::fs::write(Path::new(PAGE), answered).unwrap();
    } else if answered != page {
        let differs = page.lines().zip(answered.lines()).find(|(shown, now)| shown != now);
        let (shown, now) = differs.unwrap_or(("the end of the page", "the end of what is printed"));
        panic!(
            "docs/questions.md shows\n  {shown}\nbut what is printed is\n  {now}\nif that is right, write the page anew: \
             TALLYGATE_GENERATE=1 cargo test --locked -p tallygate-cli --test cli questions"
        );
    }
}

/// The page with the output of its commands, and the number of them.
fn answer(page: &str, run: impl Fn(&str) -> Ran) -> (String, usize) {
    let (mut answered, mut asked, mut is_console) = (String::new(), 0, false);
    for line in page.lines() {
        match line.strip_prefix("$ ") {
            Some(command) if is_console => {
                let ran = run(command);
                assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command}");
                assert!(!ran.out.is_empty(), "{command}");
                // No line of a page ends in spaces.
                let printed: String = ran.out.lines().map(|line| format!("{}\n", line.trim_end())).collect();
                answered += &format!("{line}\n{printed}");
                asked += 1;
            }
            _ if is_console && line != "```" => {}
            _ => {
                is_console = line == "```console";
                answered += &format!("{line}\n");
            }
        }
    }
    (answered, asked)
}
