use super::program::Program;

#[test]
fn what_is_old_and_idle_is_told_and_a_dry_run_does_nothing() {
    let program = Program::with_login();
    program.ok(&["check", "login", "user:42"]);
    assert_eq!(program.ok(&["maintain"]), "nothing to do\n");
    let json = program.run(&["maintain", "--keep", "400d", "--dry-run", "--format", "json"]).json();
    assert_eq!((&json["dry_run"], &json["rows_removed"]), (&true.into(), &0.into()));
    for field in ["partitions_made", "partitions_dropped"] {
        assert_eq!(json[field], serde_json::json!([]), "{field}");
    }
    for field in ["holds_removed", "heads_removed"] {
        assert_eq!(json[field], 0, "{field}");
    }
    assert_eq!(program.rows(), 1);
}

#[test]
fn what_a_zone_needs_is_not_removed() {
    let program = Program::with_login();
    for flag in ["--keep", "--idle"] {
        let ran = program.run(&["maintain", flag, "119s"]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert!(
            ran.err.contains("119s") && ran.err.contains("zone \"login\"") && ran.err.contains("or more"),
            "{}",
            ran.err
        );
        program.ok(&["maintain", flag, "130s"]);
    }
    for (flag, value, because) in [("--keep", "60", "a duration is"), ("--ahead", "11y", "up to 10 years")] {
        let ran = program.run(&["maintain", flag, value]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(because), "{}", ran.err);
    }
}
