use std::io::Read;
use std::process::Stdio;

use super::program::Program;

const HEADER: &str = "id,decided_at,zone,key,seq,txn_id,kind,checks,blocked,reason,critical,band,member,cost,spent,\
                      spent_total,remaining,retry_after_us,delay_us,level,target_at,ends_at,note,actor,login,zone_version";

/// 3 allowed and 2 blocked for `a`, 1 allowed for `b`.
fn decided() -> Program {
    let program = Program::new();
    program.ok(&["zone", "set", "login", "--rate", "3", "--per", "60s"]);
    program.ok(&["zone", "set", "other", "--rate", "3", "--per", "60s"]);
    for key in ["a", "a", "b", "a", "a", "a"] {
        program.run(&["check", "login", key]);
    }
    program.run(&["check", "other", "a"]);
    program
}

fn seqs(program: &Program, filter: &[&str]) -> Vec<i64> {
    let ran = program.run(&[&["history", "--format", "json"], filter].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran.json().as_array().unwrap().iter().map(|row| row["seq"].as_i64().unwrap()).collect()
}

#[test]
fn rows_are_found_by_zone_bucket_outcome_transaction_and_time_newest_first() {
    let program = decided();
    assert_eq!(seqs(&program, &[]).len(), 7);
    assert_eq!(seqs(&program, &["--zone", "login"]).len(), 6);
    assert_eq!(seqs(&program, &["--zone", "login", "--key", "a"]), [5, 4, 3, 2, 1]);
    assert_eq!(seqs(&program, &["--zone", "login", "--blocked"]), [5, 4]);
    assert_eq!(seqs(&program, &["--zone", "login", "--key", "a", "--allowed"]), [3, 2, 1]);
    assert_eq!(seqs(&program, &["--zone", "login", "--limit", "2"]), [5, 4]);
    assert_eq!(seqs(&program, &["--since", "1h"]).len(), 7);
    assert_eq!(seqs(&program, &["--until", "1h"]).len(), 0);
    assert_eq!(seqs(&program, &["--since", "2099-01-01T00:00:00Z"]).len(), 0);
    let rows = program.run(&["history", "--zone", "login", "--key", "a", "--format", "json"]).json();
    let txn = rows[1]["txn_id"].as_str().unwrap();
    assert_eq!(seqs(&program, &["--txn", txn]), [4]);
    let at = rows[1]["decided_at"].as_str().unwrap();
    assert_eq!(seqs(&program, &["--zone", "login", "--key", "a", "--since", at]), [5, 4]);
    assert_eq!(seqs(&program, &["--zone", "login", "--key", "a", "--until", at]), [3, 2, 1]);
}

/// A person who asks where somebody is known does not know the zone.
#[test]
fn a_key_alone_is_looked_for_in_all_zones() {
    let program = decided();
    let rows = program.run(&["history", "--key", "a", "--format", "json"]).json();
    let zones: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["zone"].as_str().unwrap()).collect();
    assert_eq!(zones, ["other", "login", "login", "login", "login", "login"]);
    assert_eq!(seqs(&program, &["--key", "a", "--blocked"]), [5, 4]);
    assert_eq!(seqs(&program, &["--key", "nobody"]).len(), 0);
    assert!(program.ok(&["history", "--key", "a"]).lines().nth(1).unwrap().contains("other"));
}

#[test]
fn times_are_read_and_shown_by_the_clock_of_a_place() {
    let program = decided();
    let table = program.ok(&["history", "--limit", "1", "--quiet"]);
    assert!(table.lines().nth(1).unwrap()[19..].starts_with(" UTC  "), "{table}");
    let there = program.ok(&["history", "--limit", "1", "--quiet", "--time-zone", "Asia/Kathmandu"]);
    let row = there.lines().nth(1).unwrap();
    assert!(row[19..].starts_with(" +0545  "), "{there}");
    // A time that is shown there is read there.
    assert_eq!(seqs(&program, &["--until", &row[..16], "--time-zone", "Asia/Kathmandu"]).len(), 0);
    assert_eq!(seqs(&program, &["--since", &row[..16], "--time-zone", "Asia/Kathmandu"]).len(), 7);
    assert_eq!(seqs(&program, &["--since", &row[..16]]).len(), 0);
    assert_eq!(seqs(&program, &["--since", "yesterday"]).len(), 7);
}

#[test]
fn json_and_csv_have_the_same_fields() {
    let program = decided();
    let csv = program.ok(&["history", "--format", "csv"]);
    assert_eq!(csv.lines().next().unwrap(), HEADER);
    assert_eq!(csv.lines().count(), 8);
    let json = program.run(&["history", "--format", "json"]).json();
    assert_eq!(json.as_array().unwrap().len(), 7);
    let mut fields: Vec<_> = HEADER.split(',').collect();
    fields.sort_unstable();
    assert_eq!(json[0].as_object().unwrap().keys().collect::<Vec<_>>(), fields);
}

#[test]
fn nothing_found_is_an_empty_array_a_bare_header_or_a_sentence() {
    let program = Program::with_login();
    assert_eq!(program.ok(&["history", "--format", "json"]), "[]\n");
    assert_eq!(program.ok(&["history", "--format", "csv"]), format!("{HEADER}\n"));
    assert_eq!(program.ok(&["history"]), "no decisions match\n");
}

#[test]
fn who_does_not_know_a_key_exactly_finds_it() {
    let program = Program::with_login();
    program.ok(&["zone", "set", "other", "--rate", "5", "--per", "60s"]);
    for (zone, key) in
        [("login", "user:root"), ("other", "user:Root2"), ("other", "user:ann"), ("login", "use")]
    {
        program.ok(&["check", zone, key]);
    }
    let hint = "no decisions match; near keys: login user:root, other user:Root2\n";
    assert_eq!(program.ok(&["history", "--key", "root"]), hint);
    assert_eq!(
        program.ok(&["history", "--key", "root", "--zone", "other"]),
        "no decisions match; near keys: other user:Root2\n"
    );
    assert_eq!(program.ok(&["history", "--key", "nobody"]), "no decisions match\n");
    let keys = |flags: &[&str]| {
        let rows = program.run(&[&["history", "--format", "json", "--key-prefix"], flags].concat()).json();
        rows.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&["user:"]), ["user:ann", "user:Root2", "user:root"], "the newest first");
    assert_eq!(keys(&["user:", "--zone", "login"]), ["user:root"]);
    assert_eq!(keys(&["user:", "--limit", "2"]), ["user:ann", "user:Root2"]);
    assert_eq!(keys(&["nobody"]), [""; 0]);
    program.run(&["history", "--key-prefix", "u", "--key", "v"]).assert_refused("--key");
    let many = (0..1_001).map(|n| format!("{{\"zone\":\"login\",\"key\":\"ip {n}\"}}\n")).collect::<String>();
    assert_eq!(program.feed(&["check", "--stdin"], many).code, 0);
    program.run(&["history", "--key-prefix", "ip "]).assert_refused("more than 1000 keys begin with \"ip \"");
}

#[test]
fn a_history_longer_than_a_page_has_every_row_once() {
    let program = Program::with_login();
    let input: String =
        (0..2500).map(|n| format!("{{\"zone\":\"login\",\"key\":\"{}\"}}\n", n % 7)).collect();
    assert_eq!(program.feed(&["check", "--stdin"], input).code, 0);
    let mut ids: Vec<i64> = program
        .run(&["history", "--limit", "5000", "--format", "json"])
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2500);
    let csv = program.ok(&["history", "--limit", "2100", "--format", "csv"]);
    assert_eq!(csv.lines().filter(|line| *line == HEADER).count(), 1);
    assert_eq!(csv.lines().count(), 2101);
    let table = program.ok(&["history", "--limit", "2100", "--quiet"]);
    assert_eq!(table.lines().filter(|line| line.starts_with("decided at")).count(), 1);
    assert_eq!(table.lines().count(), 2101);

    // A reader who has read enough goes away; no error is told, and nobody takes it for the whole.
    let mut command = program.command(&["history", "--limit", "2500", "--format", "csv"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}

#[test]
fn the_table_shows_what_a_person_asks_for() {
    let table = decided().ok(&["history", "--zone", "login", "--blocked", "--limit", "1", "--quiet"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("decided at"));
    let row = lines.next().unwrap();
    for part in ["login", "over_limit", "s  "] {
        assert!(row.contains(part), "{row}");
    }
}

#[test]
fn a_page_says_that_there_is_more_and_the_command_that_shows_it() {
    let program = decided();
    let page = program.run(&["history", "--zone", "login", "--limit", "4"]);
    assert_eq!((page.code, page.out.lines().count()), (0, 5), "{}", page.out);
    let command =
        page.err.trim_end().strip_prefix("There are older rows. Show them with: tallygate ").unwrap();
    assert!(command.starts_with("history --zone login --limit 4 --before "), "{command}");
    let last = program.run(&command.split(' ').collect::<Vec<_>>());
    assert_eq!((last.out.lines().count(), last.err.as_str()), (3, ""), "{}", last.out);
    let both = page.out + last.out.split_once('\n').unwrap().1;
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&both), words(&program.ok(&["history", "--zone", "login"])));
    for silent in [
        &["--limit", "4", "--quiet"][..],
        &["--limit", "4", "--format", "json"],
        &["--limit", "4", "--format", "csv"],
        &["--limit", "7"],
    ] {
        assert_eq!(program.run(&[&["history"], silent].concat()).err, "", "{silent:?}");
    }
    program.run(&["history", "--before", "yesterday"]).assert_refused("'yesterday'");
}

#[test]
fn a_narrow_history_longer_than_a_page_lacks_no_row() {
    let program = Program::with_login().env("COLUMNS", "60");
    let input = "{\"zone\":\"login\",\"key\":\"42\"}\n".repeat(1_001);
    assert_eq!(program.feed(&["check", "--stdin"], input).code, 0);
    let text = program.ok(&["history", "--limit", "1001"]);
    assert_eq!(text.matches("decided at ").count(), 1_001);
}

/// Keys are texts that strangers type.
#[test]
fn no_cell_of_a_csv_is_a_formula() {
    let program = Program::with_login();
    for key in ["=1+1", "+1", "-1", "@SUM(A1)", "'quoted", "card:9f3c"] {
        program.ok(&["check", "login", key]);
    }
    program.ok(&["ban", "login", "42", "--for", "1h", "--note", "=2+2", "--by", "@ops"]);
    let csv = program.ok(&["history", "--format", "csv"]);
    for cell in
        [",'=1+1,", ",'+1,", ",'-1,", ",'@SUM(A1),", ",''quoted,", ",card:9f3c,", ",'=2+2,", ",'@ops,"]
    {
        assert!(csv.contains(cell), "{cell} is not in {csv}");
    }
}
