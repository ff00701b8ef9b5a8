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
