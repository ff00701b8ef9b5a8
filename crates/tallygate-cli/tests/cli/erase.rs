use super::program::Program;

#[test]
fn what_was_erased_is_told_and_kept() {
    let program = Program::with_login();
    for _ in 0..2 {
        program.ok(&["check", "login", "user:42"]);
    }
    let erase = |key, format| program.run(&["erase", "login", key, "--note", "n 117", "--format", format]);
    let json = erase("user:42", "json").json();
    assert_eq!((&json["zone"], &json["rows"]), (&"login".into(), &2.into()));
    let key = json["key"].as_str().unwrap();
    assert_eq!((&key[..7], key.len()), ("erased:", 71));
    assert!(json["erased_at"].as_str().unwrap().ends_with('Z'));
    let kept = program.run(&["history", "--zone", "login", "--key", key, "--format", "json"]);
    assert_eq!(kept.out.matches(key).count(), 2, "{}", kept.out);
    assert!(program.ok(&["audit", "verify"]).contains("2 rows"));

    program.ok(&["check", "login", "user:42"]);
    let text = erase("user:42", "text").out;
    assert!(text.starts_with("erased a bucket of zone login with 1 row of"), "{text}");
    assert!(!text.contains("user:42"), "{text}");

    program.ok(&["check", "login", "-5"]);
    program.ok(&["erase", "login", "-5", "--note", "a key like a number"]);
}

#[test]
fn a_key_is_erased_in_all_zones() {
    let program = Program::with_login();
    for zone in ["other", "none"] {
        program.ok(&["zone", "set", zone, "--rate", "5", "--per", "60s"]);
    }
    for (zone, key) in [("login", "user:42"), ("other", "user:42"), ("other", "user:43")] {
        program.ok(&["check", zone, key]);
    }
    let told = program.ok(&["erase", "--key", "user:42", "--note", "n 117"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains("of zone login with 1 row") && told.contains("of zone other with 1 row"), "{told}");
    let left = program.run(&["history", "--key-prefix", "user:", "--format", "json"]).json();
    assert_eq!((left[0]["key"].as_str(), left.as_array().unwrap().len()), (Some("user:43"), 1));
    program
        .run(&["erase", "--key", "user:42", "--note", "n"])
        .assert_refused("no bucket \"user:42\" in any zone");
    program.run(&["erase", "login", "--key", "user:42", "--note", "n"]).assert_refused("--key");
    program.run(&["erase", "login", "--note", "n"]).assert_refused("<KEY>");
}

#[test]
fn what_cannot_be_erased_is_one_error_line() {
    let program = Program::with_login();
    program.ok(&["check", "login", "user:42"]);
    let before = program.contents();
    let erased = format!("erased:{}", "0".repeat(64));
    for (args, because) in [
        (&["login", "user:43", "--note", "n"][..], "there is no bucket \"user:43\" in zone \"login\""),
        (&["nowhere", "user:42", "--note", "n"], "\"nowhere\""),
        (&["login", "user:42"], "--note"),
        (&["login", "user:42", "--note", " "], "without a note"),
        (&["login", &erased, "--note", "n"], "begins with \"erased:\""),
    ] {
        program.run(&[&["erase"], args].concat()).assert_refused(because);
    }
    program.run(&["check", "login", &erased]).assert_refused("begins with \"erased:\"");
    assert_eq!(program.contents(), before);
}
