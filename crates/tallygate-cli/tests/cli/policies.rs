//! Policies and the acts around checks, from the command line.

use std::fs;

use serde_json::Value;

use super::program::Program;

const TXN: &str = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11";

/// A program with a zone of these flags, named `zone`.
fn with_zone(flags: &str) -> Program {
    let program = Program::new();
    program.ok(&[&["zone", "set", "zone"][..], &flags.split(' ').collect::<Vec<_>>()].concat());
    program
}

fn check(program: &Program, flags: &str) -> Value {
    let flags: Vec<_> = flags.split(' ').filter(|flag| !flag.is_empty()).collect();
    program.run(&[&["check", "zone", "42", "--format", "json"][..], &flags].concat()).json()
}

fn reasons(program: &Program, flags: &str, checks: usize) -> Vec<String> {
    let reason = |_| check(program, flags)["reason"].as_str().unwrap().to_owned();
    (0..checks).map(reason).collect()
}

#[test]
fn every_algorithm_can_be_set_and_lets_its_limit_pass() {
    for (flags, passing) in [
        ("--rate 2 --per 1h --algorithm sliding-log", 2),
        ("--rate 2 --per 1000d --algorithm fixed-window", 2),
        ("--rate 2 --algorithm fixed-window --calendar month --time-zone Asia/Kathmandu", 2),
        ("--rate 2 --per 1000d --algorithm sliding-counter --slots 10", 2),
        ("--rate 1 --per 1h --algorithm token-bucket --burst 2", 2),
        ("--rate 1 --per 1h --algorithm leaky-bucket --burst 2", 2),
        ("--rate 1 --per 1h --algorithm leaky-queue --burst 2", 2),
        ("--rate 2 --per 10h --algorithm uniform", 1),
        ("--rate 2 --algorithm concurrency --slot-ttl 1h", 2),
    ] {
        let program = with_zone(flags);
        let codes: Vec<_> = (0..3).map(|_| program.run(&["check", "zone", "42"]).code).collect();
        let expected: Vec<_> = (0..3).map(|n| i32::from(n >= passing)).collect();
        assert_eq!(codes, expected, "{flags}");
        let zone = program.run(&["zone", "show", "zone", "--format", "json"]).json();
        assert!(flags.contains(zone["algorithm"].as_str().unwrap()), "{flags}");
    }
}

#[test]
fn members_are_counted_once() {
    let program = with_zone("--rate 2 --per 1h --algorithm distinct");
    for (member, blocked) in [("a", false), ("b", false), ("a", false), ("c", true), ("b", false)] {
        let decision = check(&program, &format!("--member {member}"));
        assert_eq!(decision["blocked"], blocked, "{member}");
    }
    program.run(&["check", "zone", "42"]).assert_refused("name the one");
    assert_eq!(program.rows(), 5);
}

#[test]
fn a_soft_limit_warns_and_a_reserve_is_for_critical_checks() {
    let program = with_zone("--rate 5 --per 1h --soft-rate 2 --reserve 1");
    let expected = ["within_limit", "within_limit", "soft", "soft", "over_limit"];
    assert_eq!(reasons(&program, "", 5), expected);
    assert_eq!(reasons(&program, "--critical", 2), ["soft", "over_limit"]);
    let text = with_zone("--rate 5 --per 1h --soft-rate 0").run(&["check", "zone", "42"]).out;
    assert!(text.contains("soft limit passed"), "{text}");
}

#[test]
fn a_shadowed_zone_records_what_it_would_have_done_and_a_switched_off_one_nothing() {
    let program = with_zone("--rate 1 --per 1h --mode shadow");
    assert_eq!(reasons(&program, "", 2), ["within_limit", "over_limit"]);
    let ran = program.run(&["check", "zone", "42"]);
    assert!(ran.code == 0 && ran.out.contains("over_limit, but the zone only shadows"), "{}", ran.out);
    program.ok(&["zone", "set", "zone", "--rate", "1", "--per", "1h", "--mode", "off"]);
    assert_eq!(reasons(&program, "", 2), ["off", "off"]);
}

#[test]
fn blocked_checks_may_count_and_may_lead_to_a_ban() {
    let program = with_zone("--rate 2 --per 1h --count-blocked --ban-after 2 --ban-within 1h --ban-for 2h");
    let expected = ["within_limit", "within_limit", "over_limit", "over_limit", "banned"];
    assert_eq!(reasons(&program, "", 5), expected);
    let rows = program.run(&["history", "--format", "json"]).json();
    let kinds: Vec<_> =
        rows.as_array().unwrap().iter().rev().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["check", "check", "check", "check", "ban", "check"]);
    assert_eq!(rows[5]["spent_total"], 1);
    assert_eq!(rows[0]["spent_total"], 4);
    let table = program.ok(&["history"]);
    assert!(table.contains("ban until "), "{table}");
    program.ok(&["unban", "zone", "42", "--note", "by phone"]);
    assert_eq!(check(&program, "")["reason"], "over_limit");
    program.ok(&["ban", "zone", "43", "--for", "1h", "--note", "stolen"]);
    assert_eq!(program.run(&["check", "zone", "43"]).code, 1);
    let table = program.ok(&["history", "--zone", "zone", "--key", "43"]);
    assert!(table.contains(": stolen"), "{table}");
    program.run(&["unban", "zone", "44", "--note", "?"]).assert_refused("not banned");
}

#[test]
fn a_bucket_may_have_a_limit_of_its_own_for_a_while() {
    let program = with_zone("--rate 1 --per 1h");
    let set = ["override", "set", "zone", "42", "--rate", "3", "--for", "1h", "--note", "launch"];
    program.ok(&set);
    let codes: Vec<_> = (0..4).map(|_| program.run(&["check", "zone", "42"]).code).collect();
    assert_eq!(codes, [0, 0, 0, 1]);
    let list = program.run(&["override", "list", "zone", "--format", "json"]).json();
    assert_eq!((&list[0]["key"], &list[0]["limit"]["rate"]), (&"42".into(), &3.into()));
    assert_eq!((&list[0]["note"], &list[0]["set_by"]), (&"launch".into(), &"tester".into()));
    assert!(program.ok(&["override", "list", "zone"]).contains("3 per 1h"));
    program.ok(&["override", "remove", "zone", "42", "--note", "over"]);
    assert!(program.ok(&["override", "list", "zone"]).contains("no overrides"));
    program.run(&["override", "remove", "zone", "42", "--note", "again"]).assert_refused("no override");
}

#[test]
fn a_charge_is_given_back_once_and_a_reservation_settled() {
    let program = with_zone("--rate 5 --per 1h");
    check(&program, &format!("--cost 3 --txn {TXN}"));
    let refund = program.run(&["refund", TXN, "--format", "json"]).json();
    assert_eq!(
        (&refund[0]["kind"], &refund[0]["cost"], &refund[0]["remaining"]),
        (&"refund".into(), &3.into(), &5.into())
    );
    assert!(program.ok(&["refund", TXN]).contains("3 given back  5 left  recorded before"));
    let other = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b12";
    program.ok(&["reserve", "zone", "42", "--cost", "5", "--ttl", "1h", "--txn", other]);
    assert_eq!(check(&program, "")["blocked"], true);
    assert!(program.ok(&["settle", other, "--cost", "2"]).contains("came to 2  3 left"));
    program.run(&["cancel", other]).assert_refused(other);
    let program = with_zone("--rate 1 --algorithm concurrency --slot-ttl 1h");
    check(&program, &format!("--txn {TXN}"));
    assert_eq!(check(&program, "")["blocked"], true);
    assert!(program.ok(&["release", TXN]).starts_with("release  zone 42  1 given back  1 left"));
    assert_eq!(check(&program, "")["blocked"], false);
}

#[test]
fn several_limits_pass_together_or_not_at_all() {
    let program = with_zone("--rate 5 --per 1h");
    program.ok(&["zone", "set", "other", "--rate", "3", "--per", "1h"]);
    let ask = ["check", "zone", "42", "--also", "other=ip:7:2", "--format", "json"];
    let first = program.run(&ask);
    let json = first.json();
    assert_eq!((first.code, &json["blocked"], json["binding"].is_null()), (0, &false.into(), true));
    assert_eq!(
        (&json["decisions"][1]["key"], &json["decisions"][1]["remaining"]),
        (&"ip:7".into(), &1.into())
    );
    let second = program.run(&ask);
    let json = second.json();
    assert_eq!((second.code, &json["blocked"], &json["binding"]), (1, &true.into(), &"other".into()));
    assert_eq!(json["decisions"][0]["reason"], "held_back");
    let text = program.run(&["check", "zone", "42", "--also", "other=ip:7:2"]).out;
    assert_eq!(text.lines().count(), 2, "{text}");
    program.run(&["check", "zone", "42", "--also", "zone=42"]).assert_refused("named twice");
}

#[test]
fn a_check_may_wait_until_it_passes() {
    let program = with_zone("--rate 5 --per 1s --algorithm uniform");
    let codes: Vec<_> = (0..3).map(|_| program.run(&["check", "zone", "42", "--wait", "20s"]).code).collect();
    assert_eq!(codes, [0, 0, 0]);
    let queue = with_zone("--rate 1 --per 1h --algorithm leaky-queue --burst 2");
    assert_eq!(check(&queue, "")["delay_us"], 0);
    assert!(queue.run(&["check", "zone", "42"]).out.contains("go on in "));
}

#[test]
fn zones_are_code() {
    let program = Program::new();
    program.ok(&["zone", "set", "old", "--rate", "1", "--per", "1h"]);
    let file = "[zone.login]\nrate = 5\nper = \"60s\"\nban-after = 3\nban-within = \"1h\"\nban-for = \"15m\"\n\
        description = \"attempts\"\n[zone.exports]\nrate = 7\nalgorithm = \"fixed-window\"\ncalendar = \"month\"\n\
        time-zone = \"Europe/Berlin\"\n";
    std::fs::write(program.path("zones.toml"), file).unwrap();
    let apply = |flags: &[&str]| {
        program.run(&[&["apply", "zones.toml", "--format", "json"][..], flags].concat()).json()
    };
    let words = program.ok(&["apply", "zones.toml", "--dry-run"]);
    assert!(words.contains("    5 per 60s, ban for 15m after 3 blocked in 1h; sliding-log\n"), "{words}");
    let dry = apply(&["--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["zones"][0]["action"]), (&true.into(), &"create".into()));
    assert_eq!(dry["others"], serde_json::json!(["old"]));
    assert_eq!(program.run(&["zone", "list", "--format", "json"]).json().as_array().unwrap().len(), 1);
    apply(&[]);
    let same = apply(&["--by", "release"]);
    assert!(
        same["zones"].as_array().unwrap().iter().all(|zone| zone["action"] == "keep" && zone["version"] == 1)
    );
    std::fs::write(program.path("zones.toml"), file.replace("rate = 5", "rate = 6")).unwrap();
    let text = program.ok(&["apply", "zones.toml", "--dry-run"]);
    assert!(text.contains("rate: 5 -> 6") && text.contains("1 of 2 zones would change"), "{text}");
    let longer = file.replace("60s", "24h").replace("ban-for = \"15m\"", "ban-for = \"30d\"");
    std::fs::write(program.path("longer.toml"), longer).unwrap();
    let text = program.ok(&["apply", "longer.toml", "--dry-run"]);
    assert!(
        text.contains("    window: 60s -> 24h\n") && text.contains("for 15m") && text.contains("for 30d"),
        "{text}"
    );
    let changed = apply(&["--by", "release"]);
    assert_eq!(
        (&changed["zones"][1]["version"], &changed["zones"][1]["changes"][0]["to"]),
        (&2.into(), &6.into())
    );
    let shown = program.run(&["zone", "show", "login", "--format", "json"]).json();
    assert_eq!(shown["versions"][1]["changed_by"], "release");
    assert_eq!((&shown["ban"]["after"], &shown["description"]), (&3.into(), &"attempts".into()));
    // One bad zone, and nothing is changed.
    let bad = file.replace("rate = 5", "rate = 9").replace("\"month\"", "\"fortnight\"");
    std::fs::write(program.path("zones.toml"), bad).unwrap();
    program.run(&["apply", "zones.toml"]).assert_refused("fortnight");
    std::fs::write(program.path("zones.toml"), "[zone.a]\nrate = 1\nper = \"1h\"\nbrust = 3\n").unwrap();
    program.run(&["apply", "zones.toml"]).assert_refused("brust");
    std::fs::write(program.path("zones.toml"), "[zone.a]\nrate = 1\nper = \"1M\"\n").unwrap();
    program.run(&["apply", "zones.toml"]).assert_refused("use 1m for a minute");
    std::fs::write(program.path("zones.toml"), "[zone.a]\nrate = 1\nper = \"1h\"\nreserve = 1\n").unwrap();
    program.run(&["apply", "zones.toml"]).assert_refused("zones.toml: line 1: zone \"a\": reserve 1");
    program.run(&["apply", "nowhere.toml"]).assert_refused("nowhere.toml");
    // A look at a file refuses all that would be refused.
    let long = "x".repeat(1001);
    for (zone, because) in [
        ("\" login\"]\nrate = 1", "\" login\""),
        ("42]\nrate = 1", "\"42\""),
        (
            &format!("a]\ndescription = \"{long}\"\nrate = 1"),
            "line 1: zone \"a\": description of 1001 characters",
        ),
        ("login]\nalgorithm = \"capacity\"\nrate = 1", "cannot turn from sliding-log into capacity"),
        ("login]\nalgorithm = \"queue\"\nrate = 1", "cannot turn from sliding-log into queue"),
    ] {
        std::fs::write(program.path("zones.toml"), format!("[zone.{zone}\nper = \"1h\"\n")).unwrap();
        program.run(&["apply", "zones.toml", "--dry-run"]).assert_refused(because);
        program.run(&["apply", "zones.toml"]).assert_refused(because);
    }
    assert_eq!(program.run(&["zone", "show", "login", "--format", "json"]).json()["rate"], 6);
}

#[test]
fn every_bad_flag_of_a_policy_is_one_error_line_and_changes_nothing() {
    let program = with_zone("--rate 5 --per 60s");
    let before = program.contents();
    for (flags, because) in [
        ("--algorithm fixed-window --calendar year", "year"),
        ("--algorithm fixed-window --calendar day --time-zone Mars/Olympus", "Mars/Olympus"),
        ("--algorithm fixed-window --calendar day --per 1h", "has its own length"),
        ("--calendar day", "does not follow a calendar"),
        ("--per 60s --time-zone UTC", "--calendar"),
        ("--per 60s --algorithm sliding-counter --slots 0", "0 slots"),
        ("--per 60s --algorithm sliding-counter --slots 7", "cannot be cut into 7"),
        ("--per 60s --slots 3", "has no slots"),
        ("--per 60s --algorithm fixed-window --burst 9", "has no meaning"),
        ("--per 60s --algorithm uniform --burst 9", "has no meaning"),
        ("--per 60s --soft-rate 5", "soft rate 5"),
        ("--per 60s --soft-rate -1", "soft rate -1"),
        ("--per 60s --reserve 5", "reserve 5"),
        ("--per 60s --reserve -1", "reserve -1"),
        ("--per 60s --mode maybe", "maybe"),
        ("--per 60s --algorithm token-bucket --count-blocked", "cannot count blocked"),
        ("--per 60s --count-blocked --blocked-rows coalesced", "a row each"),
        ("--per 60s --ban-after 3", "--ban-within"),
        ("--per 60s --ban-for 3h", "--ban-after"),
        ("--per 60s --ban-after 0 --ban-within 1h --ban-for 1h", "after 0"),
        ("--per 60s --ban-after 3 --ban-within 0s --ban-for 1h", "of 0s"),
        ("--per 60s --ban-after 3 --ban-within 1h --ban-for 11y", "10 years"),
        ("--per 60s --ban-after 3 --ban-within 1h --ban-for 1h --ban-factor 0", "ban factor 0"),
        ("--per 60s --ban-after 3 --ban-within 1h --ban-for 1h --ban-max 1m", "shorter"),
        ("--per 60s --on-outage ajar", "ajar"),
        ("--per 60s --running-buckets gone", "gone"),
        ("--per 60s --slot-ttl 1h", "one; give --per or --slot-ttl"),
        ("--slot-ttl 1h", "holds no slots"),
        ("--algorithm concurrency", "--slot-ttl"),
        ("--per 60s --algorithm leaky", "leaky"),
    ] {
        let args: Vec<_> =
            ["zone", "set", "zone", "--rate", "5"].into_iter().chain(flags.split(' ')).collect();
        program.run(&args).assert_refused(because);
    }
    for (args, because) in [
        (&["check", "zone", "42", "--member", "a"][..], "counts no members"),
        (&["check", "zone", "42", "--member", ""], "member is empty"),
        (&["check", "zone", "42", "--also", "zone"], "ZONE=KEY"),
        (&["check", "zone", "42", "--also", "zone=43:-1"], "cost -1"),
        (&["check", "zone", "42", "--also", "nowhere=1"], "nowhere"),
        (&["check", "zone", "42", "--wait", "5"], "with its unit"),
        (&["check", "zone", "42", "--wait", "5s", "--txn", TXN], "--txn"),
        (&["refund", "7"], "TXN"),
        (&["refund", TXN], "there is no transaction"),
        (&["refund", TXN, "--zone", "zone"], "--key"),
        (&["settle", TXN], "--cost"),
        (&["settle", TXN, "--cost", "-1"], "cost -1"),
        (&["cancel", TXN], "there is no transaction"),
        (&["release", TXN], "there is no transaction"),
        (&["reserve", "zone", "42"], "--ttl"),
        (&["reserve", "zone", "42", "--ttl", "0s"], "0s"),
        (&["reserve", "zone", "42", "--ttl", "1h", "--cost", "0"], "cost 0"),
        (&["ban", "zone", "42", "--note", "why"], "--for"),
        (&["ban", "zone", "42", "--for", "1h"], "--note"),
        (&["ban", "zone", "42", "--for", "0s", "--note", "why"], "0s"),
        (&["ban", "nowhere", "42", "--for", "1h", "--note", "why"], "nowhere"),
        (&["ban", "zone", "", "--for", "1h", "--note", "why"], "bucket key is empty"),
        (&["override", "set", "zone", "42", "--note", "why"], "changes nothing"),
        (&["override", "set", "zone", "42", "--rate", "0", "--note", "why"], "rate 0"),
        (&["override", "set", "zone", "42", "--per", "1h", "--note", "why"], "--rate"),
        (&["override", "set", "zone", "42", "--rate", "2", "--for", "0s", "--note", "why"], "0s"),
        (&["override", "list", "nowhere"], "nowhere"),
    ] {
        program.run(args).assert_refused(because);
    }
    assert_eq!(program.contents(), before);
}

#[test]
fn capacity_is_leased_explained_and_given_back() {
    let program =
        with_zone("--rate 100 --per 60s --algorithm capacity --share bands --guaranteed 10 --refresh 16s");
    let shown = program.ok(&["zone", "show", "zone"]);
    assert!(shown.contains("100 handed out, each for 60s, share bands, refresh every 16s"), "{shown}");
    let lease = |flags: &str| {
        let flags: Vec<_> = flags.split(' ').collect();
        program.run(&[&["lease", "get", "zone", "gpu", "--format", "json"][..], &flags].concat())
    };
    let first = lease("--client a --wants 80 --band critical").json();
    assert_eq!((&first["has"], &first["band"], &first["seq"]), (&80.into(), &1.into(), &1.into()));
    let second = lease("--client b --wants 80 --band 0 --weight 2").json();
    assert_eq!((&second["has"], &second["remaining"]), (&20.into(), &0.into()));
    let text = program.ok(&[
        "lease", "get", "zone", "gpu", "--client", "a", "--wants", "80", "--after", "1", "--band", "1",
    ]);
    assert!(text.contains("a  20 of 100  for 60s, again after 16s  60 left"), "{text}");
    lease("--client a --wants 80 --after 1").assert_refused("has another lease");
    lease("--client a --wants -1").assert_refused("wants -1 is out of range");
    lease("--client a --wants 1 --band urgent")
        .assert_refused("critical-plus, critical, sheddable-plus, sheddable");

    let listed = program.run(&["lease", "list", "zone", "gpu", "--format", "json"]).json();
    let listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|of| (&of["client"], &of["has"], &of["seq"])).collect();
    assert_eq!(listed, [(&"a".into(), &20.into(), &3.into()), (&"b".into(), &20.into(), &2.into())]);
    let table = program.ok(&["lease", "list", "zone", "gpu"]);
    assert!(
        table.starts_with("client  has  wants") && table.contains("\nb       20   80     2       0"),
        "{table}"
    );
    assert_eq!(program.ok(&["lease", "list", "zone", "cpu"]), "nobody has a lease of cpu\n");

    let why = program.ok(&["audit", "explain", second["txn_id"].as_str().unwrap()]);
    for said in [
        "b asked for 80, with a weight of 2 in band 0.",
        "1 other client had 80 of 100 and wanted 80.",
        "Its share (bands) came to 80.",
        "since others had the rest and had not asked again yet; 0 were left.",
        "Derived again from the rows before it: the same.",
    ] {
        assert!(why.contains(said), "{said}: {why}");
    }
    let back = program.ok(&["lease", "release", "zone", "gpu", "--client", "a"]);
    assert!(back.contains("given back"), "{back}");
    program.ok(&["audit", "verify"]);
    // Nothing else is done there.
    program.run(&["check", "zone", "gpu"]).assert_refused("take a lease of it");
    program.run(&["zone", "set", "zone", "--rate", "5", "--per", "60s"]).assert_refused("make another zone");
    let set = |flags: &str| {
        program.run(&[&["zone", "set", "other"][..], &flags.split(' ').collect::<Vec<_>>()].concat())
    };
    set("--rate 5 --per 60s --share fair").assert_refused("leave the sharing out, or use capacity");
    set("--rate 5 --per 60s --algorithm capacity --refresh 61s").assert_refused("the length of a lease");
    set("--rate 5 --per 60s --algorithm capacity --guaranteed 1").assert_refused("use bands");
    set("--rate 5 --per 60s --algorithm capacity --mode shadow").assert_refused("handed out, not checked");
}

#[test]
fn items_are_offered_taken_worked_off_and_explained() {
    // At 1 each millisecond the pace lets through what a command asks for after another.
    let program = with_zone("--rate 1000 --per 1s --algorithm queue --burst 4 --backlog 6 --max-takes 2");
    let shown = program.ok(&["zone", "show", "zone"]);
    assert!(
        shown.contains("a queue served at 1000 per 1s, burst 4, backlog 6, dead after 2 takes"),
        "{shown}"
    );
    let queue = |flags: &str| {
        let flags: Vec<_> = flags.split(' ').collect();
        program.run(&[&["queue", flags[0], "zone", "out"][..], &flags[1..]].concat())
    };
    let json = |flags: &str| queue(&format!("{flags} --format json")).json();
    let first = json(r#"offer --cost 3 --band sheddable --payload {"to":42} --deadline 10m"#);
    assert_eq!((&first["blocked"], &first["remaining"]), (&false.into(), &3.into()));
    let second = json("offer --cost 3 --band 1");
    let full = queue("offer --cost 2 --band 4");
    assert_eq!(full.code, 1);
    assert!(full.out.contains("over_limit  0 left  room after"), "{}", full.out);
    let evicting = json("offer --cost 1 --band critical-plus");
    assert_eq!(evicting["evicted"], serde_json::json!([first["txn_id"]]));
    let txn = |of: &serde_json::Value| of["txn_id"].as_str().unwrap().to_owned();
    let gone = json(&format!("show --txn {}", txn(&first)));
    assert_eq!((&gone["state"], &gone["evicted_by"]), (&"evicted".into(), &evicting["txn_id"]));
    let works = json("take --for 60s --most 9 --worker w1");
    let receipt = |n: usize| works["items"][n]["receipt"].as_str().unwrap().to_owned();
    assert_eq!(
        (&works["items"][0]["txn_id"], &works["items"][1]["txn_id"]),
        (&evicting["txn_id"], &second["txn_id"])
    );
    let nothing = queue("take --for 60s");
    assert_eq!((nothing.code, nothing.out.trim()), (1, "nothing waits"));
    assert_eq!(queue(&format!("extend {} --for 90s", receipt(0))).code, 0);
    assert!(queue(&format!("done {}", receipt(0))).out.starts_with("done  3 left"));
    assert!(queue(&format!("done {}", receipt(0))).out.contains("said before"));
    queue(&format!("release {} --delay 1h", receipt(0))).assert_refused("is lost");
    assert!(queue(&format!("release {} --delay 1h", receipt(1))).out.starts_with("delayed until"));
    assert_eq!(queue("show").out.trim(), "0 units waiting  3 taken or delayed  backlog 6");
    assert_eq!(queue("dead").out, "");
    let short = json("offer");
    for _ in 0..2 {
        let receipt = json("take --for 60s")["items"][0]["receipt"].as_str().unwrap().to_owned();
        queue(&format!("release {receipt}"));
    }
    assert!(queue("dead").out.starts_with(&format!("{}  dead", txn(&short))));
    let redrive = format!("redrive --txn {} --by ann", txn(&short));
    assert!(queue(&redrive).out.starts_with("waiting  "));
    let said = program.ok(&["audit", "explain", &txn(&short)]);
    assert!(said.contains("It was dead after take 2, and is tried again by ann;"), "{said}");
    queue(&format!("done {}", json("take --for 60s")["items"][0]["receipt"].as_str().unwrap()));
    queue(&redrive).assert_refused("has gone from its queue: done");
    let report = program.run(&["audit", "report", "--since", "1h", "--format", "json"]).json();
    let zone = &report["zones"][0];
    assert_eq!((&zone["checks"], &zone["blocked"], &zone["actions"]), (&5.into(), &1.into(), &0.into()));
    assert_eq!(zone["handed_out"]["evict"], serde_json::json!({ "rows": 1, "cost": 3 }));
    assert_eq!(zone["handed_out"]["take"]["rows"], 5);
    let history = program.ok(&["history", "--zone", "zone", "--limit", "100"]);
    for told in ["offer, over_limit", "take until", "by w1", "evict for", "requeue by ann", "done"] {
        assert!(history.replace('\n', " ").contains(told), "{told}: {history}");
    }
    queue("done 7").assert_refused("is no receipt");
    queue("done 1-01890a5d-ac96-774b-bcce-b302099a8057").assert_refused("of no item that was taken");
    queue("offer --cost -1").assert_refused("cost -1 is out of range");
    queue("offer --payload {").assert_refused("use JSON");
    queue("take --for 0s").assert_refused("out of range");
    queue("show --txn 01890a5d-ac96-774b-bcce-b302099a8057").assert_refused("offered nothing to this queue");
    program.run(&["check", "zone", "out"]).assert_refused("offer an item to it");

    for (of, said) in [
        (
            &first,
            "It was about an item of 3 units in band 3. Of the backlog of 6, 0 waited and 0 were taken or given back for later.",
        ),
        (&first, "It was offered, and was to wait, until "),
        (&first, "It had to make room for what transaction"),
        (&second, "It was next, and was taken by w1 until "),
        (&second, "It was given back, to be taken again from "),
        (&evicting, "Less important items had to make room for it."),
        (&evicting, "The worker that had taken it keeps it until "),
        (&evicting, "It was worked off; 3 of the backlog were left."),
        (&evicting, "Derived again from the rows before it: the same."),
    ] {
        let why = program.ok(&["audit", "explain", &txn(of)]);
        assert!(why.contains(said), "{said}: {why}");
    }
    program.ok(&["audit", "verify"]);
    let set = |flags: &str| {
        program.run(&[&["zone", "set", "other"][..], &flags.split(' ').collect::<Vec<_>>()].concat())
    };
    set("--rate 5 --per 60s --backlog 9").assert_refused("leave out the backlog and the takes, or use queue");
    set("--rate 5 --per 60s --algorithm queue --backlog 0").assert_refused("backlog 0 is out of range");
    set("--rate 5 --per 60s --algorithm queue --max-takes 1001")
        .assert_refused("1001 takes are out of range");
    set("--rate 5 --per 60s --algorithm queue --mode shadow").assert_refused("a queue decides no checks");
    set("--rate 5 --per 60s --algorithm queue --on-outage open").assert_refused("a queue decides no checks");
    let file = program.path("events.csv");
    std::fs::write(&file, "at,key\n2026-01-01 00:00:00,a\n").unwrap();
    program
        .run(&["backtest", file.to_str().unwrap(), "--rate", "5", "--per", "60s", "--algorithm", "queue"])
        .assert_refused("a zone of queue decides no checks");
}

#[test]
fn a_zone_that_is_decided_locally_shows_what_was_asked_for() {
    let program = with_zone("--rate 100 --per 60s --local 2s");
    assert!(program.ok(&["zone", "show", "zone"]).contains("100 per 60s, local 2s"));
    let zone = program.run(&["zone", "show", "zone", "--format", "json"]).json();
    assert_eq!((&zone["window_us"], &zone["local_us"]), (&60_000_000.into(), &2_000_000.into()));
    // A process that asks once takes nothing.
    let seqs: Vec<_> = (0..3).map(|_| check(&program, "")["seq"].clone()).collect();
    assert_eq!(seqs, [1, 2, 3]);
    for (flags, said) in [
        ("--local 60s", "local 60s is out of range; use 1 µs to less than the window, 60s"),
        ("--local 0s", "local 0s is out of range"),
        ("--local -1s", "a duration is a number with its unit"),
        ("--algorithm distinct --local 1s", "distinct cannot be decided locally; leave local out, or use"),
        ("--algorithm token-bucket --local 59s", "leave nothing of a burst of 5; make local shorter"),
    ] {
        let flags: Vec<_> = flags.split(' ').collect();
        program
            .run(&[&["zone", "set", "other", "--rate", "5", "--per", "60s"][..], &flags].concat())
            .assert_refused(said);
    }
}

/// The rules of a time zone that is always at UTC, as a system has them: RFC 9636.
fn rules_of_utc() -> Vec<u8> {
    let counts = [0_u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat();
    let block = [b"TZif2".as_slice(), &[0; 15], &counts, &[0; 6], b"UTC\0"].concat();
    [&block, &block, b"\nUTC0\n".as_slice()].concat()
}

#[test]
fn a_zone_that_is_set_again_takes_the_rules_of_a_later_release() {
    let program = Program::new();
    let set = "zone set daily --rate 2 --algorithm fixed-window --calendar day --time-zone Asia/Tokyo";
    let set: Vec<_> = set.split(' ').collect();
    program.ok(&set);
    let zoneinfo = program.path("zoneinfo");
    fs::create_dir_all(zoneinfo.join("Asia")).unwrap();
    fs::write(zoneinfo.join("tzdata.zi"), "# version 2999a\n").unwrap();
    fs::write(zoneinfo.join("Asia/Tokyo"), rules_of_utc()).unwrap();
    let updated = |args: &[&str]| {
        let output = program.command(args).env("TZDIR", &zoneinfo).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let own = program.ok(&["migrate", "--check"]);
    let own = own.trim_end().rsplit(' ').next().unwrap();
    assert!(own < "2999a" && updated(&["migrate", "--check"]).ends_with(" tzdata 2999a\n"), "{own}");
    assert!(updated(&set).contains("daily"));
    // A program that knows older rules leaves them as they are.
    program.ok(&set);
    assert!(program.ok(&["zone", "show", "daily"]).contains("2999a"));
    let shown = program.run(&["zone", "show", "daily", "--format", "json"]).json();
    let versions = shown["versions"].as_array().unwrap().iter();
    assert_eq!(
        versions.map(|version| version["tzdata"].as_str()).collect::<Vec<_>>(),
        [Some(own), Some("2999a")]
    );
}
