use super::program::Program;

#[test]
fn setting_a_zone_prints_it_with_its_id() {
    let program = Program::new();
    let args = ["zone", "set", "login", "--rate", "5", "--per", "60s", "--description", "attempts"];
    let table = program.ok(&args);
    assert!(table.starts_with("id  name"), "{table}");
    assert!(table.contains("1   login  5 per 60s  sliding-log  yes    1"), "{table}");
    let json = program.run(&["zone", "set", "api", "--rate", "7", "--per", "1m", "--format", "json"]).json();
    assert_eq!((&json["id"], &json["name"], &json["rate"]), (&2.into(), &"api".into(), &7.into()));
    assert_eq!((&json["window_us"], &json["version"]), (&60_000_000.into(), &1.into()));
}

#[test]
fn a_change_makes_a_version_that_says_who_and_no_change_makes_none() {
    let program = Program::with_login();
    program.ok(&["zone", "set", "login", "--rate", "5", "--per", "1m"]);
    let bucket = ["--algorithm", "token-bucket", "--burst", "20", "--by", "alice"];
    program.ok(&[&["zone", "set", "login", "--rate", "6", "--per", "1h"], &bucket[..]].concat());
    let shown = program.run(&["zone", "show", "login", "--format", "json"]).json();
    let versions = shown["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2);
    assert_eq!((&versions[0]["rate"], &versions[0]["changed_by"]), (&5.into(), &"tester".into()));
    assert_eq!((&versions[1]["burst"], &versions[1]["changed_by"]), (&20.into(), &"alice".into()));
    assert_eq!((&shown["algorithm"], &shown["version"]), (&"token-bucket".into(), &2.into()));
    let table = program.ok(&["zone", "show", "login"]);
    assert!(table.contains("6 per 1h, burst 20") && table.contains("5 per 60s"), "{table}");
}

#[test]
fn a_zone_that_is_set_without_its_choices_has_the_usual_ones() {
    let program = Program::new();
    let set = ["zone", "set", "search", "--rate", "5", "--per", "1s"];
    let choices = ["--durability", "relaxed", "--blocked-rows", "coalesced"];
    let table = program.ok(&[&set[..], &choices].concat());
    assert!(table.contains("5 per 1s, relaxed, blocked rows coalesced"), "{table}");
    program.ok(&set);
    let shown = program.run(&["zone", "show", "search", "--format", "json"]).json();
    assert_eq!((&shown["durability"], &shown["blocked_rows"]), (&"durable".into(), &"each".into()));
    let first = &shown["versions"][0];
    assert_eq!((&first["durability"], &first["blocked_rows"]), (&"relaxed".into(), &"coalesced".into()));
    let refused = program.run(&[&set[..], &["--durability", "lazy"]].concat());
    assert!(refused.err.contains("durable, relaxed"), "{}", refused.err);
}

#[test]
fn the_description_stays_when_it_is_not_given() {
    let program = Program::new();
    program.ok(&["zone", "set", "a", "--rate", "5", "--per", "60s", "--description", "kept"]);
    program.ok(&["zone", "set", "a", "--rate", "6", "--per", "60s"]);
    assert_eq!(program.run(&["zone", "show", "a", "--format", "json"]).json()["description"], "kept");
}

#[test]
fn zones_are_listed_by_name() {
    let program = Program::with_login();
    program.ok(&["zone", "set", "api", "--rate", "1", "--per", "1s"]);
    let zones = program.run(&["zone", "list", "--format", "json"]).json();
    let names: Vec<_> = zones.as_array().unwrap().iter().map(|zone| zone["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["api", "login"]);
    assert_eq!(program.ok(&["zone", "list"]).lines().count(), 3);
}

#[test]
fn a_mistake_is_removed_and_what_was_used_or_shall_have_another_name_is_not() {
    let program = Program::with_login();
    program.ok(&["zone", "set", "lgoin", "--rate", "5", "--per", "60s"]);
    assert_eq!(program.ok(&["zone", "remove", "lgoin"]), "removed  lgoin\n");
    program.run(&["zone", "remove", "lgoin"]).assert_refused("there is no zone \"lgoin\"");
    program.run(&["zone", "rename", "login", "signin"]).assert_refused("a zone keeps its name");
    program.ok(&["check", "login", "42"]);
    program.run(&["zone", "remove", "login"]).assert_refused("--mode off");
    let zones = program.run(&["zone", "list", "--format", "json"]).json();
    assert_eq!((zones.as_array().unwrap().len(), &zones[0]["name"]), (1, &"login".into()));
    program.ok(&["audit", "verify"]);
}

#[test]
fn an_empty_list_says_how_to_make_a_zone() {
    let program = Program::new();
    program.ok(&["migrate"]);
    assert!(program.ok(&["zone", "list"]).contains("tallygate zone set login"));
}

#[test]
fn a_description_cannot_write_over_the_terminal() {
    let program = Program::new();
    let table =
        program.ok(&["zone", "set", "a", "--rate", "5", "--per", "60s", "--description", "\x1b[2Jx\ny"]);
    assert!(!table.contains('\x1b') && table.lines().count() == 2, "{table:?}");
}
