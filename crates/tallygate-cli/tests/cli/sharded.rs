use super::program::Program;
use super::serve::{Server, check};
use uuid::Uuid;

const LIST: [&str; 4] = ["--database", "eu-1=sqlite:one.db", "--database", "eu-2=sqlite:two.db"];

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &LIST[..]].concat()
}

#[test]
fn every_command_works_with_a_list_of_databases() {
    let program = Program::new();
    let migrated = program.ok(&with(&["migrate"]));
    assert!(migrated.contains("eu-1") && migrated.contains("eu-2"), "{migrated}");
    assert_eq!(program.run(&with(&["migrate", "--check"])).code, 0);
    let zone = with(&["zone", "set", "login", "--rate", "1", "--per", "1h"]);
    assert!(program.ok(&zone).contains("1   login"));
    for n in 0..12 {
        let key = format!("user:{n}");
        assert_eq!(program.run(&with(&["check", "login", &key])).code, 0, "{key}");
        assert_eq!(program.run(&with(&["check", "login", &key])).code, 1, "{key}");
    }
    let lines = program.ok(&with(&["history", "--zone", "login", "--format", "json"]));
    assert_eq!(lines.matches("\"txn_id\"").count(), 24, "{lines}");
    let verified = program.run(&with(&["audit", "verify", "--format", "json"]));
    assert_eq!((verified.code, &verified.json()["rows"]), (0, &24.into()));
    program.ok(&with(&["audit", "report"]));
    program.ok(&with(&["maintain"]));
    // Each of them has its part, and one list in the environment is the same as two flags.
    let rows = |database: &str| {
        let lines = program.ok(&["history", "--database", database, "--zone", "login", "--format", "json"]);
        lines.matches("\"txn_id\"").count()
    };
    let (one, two) = (rows("sqlite:one.db"), rows("sqlite:two.db"));
    assert!(one > 0 && two > 0 && one + two == 24, "{one} {two}");
    assert_eq!(rows("eu-2=sqlite:two.db eu-1=sqlite:one.db"), 24);
}

#[test]
fn a_list_that_is_wrong_is_refused_and_says_what_to_do() {
    let program = Program::new();
    program.ok(&with(&["migrate"]));
    for (list, told) in [
        (&["--database", "eu-1=sqlite:two.db", "--database", "eu-2=sqlite:one.db"][..], "by its own table"),
        (&["--database", "eu-1=sqlite:one.db", "--database", "sqlite:two.db"], "number 2 has no name"),
        (&["--database", "eu-1=sqlite:one.db sqlite:two.db"], "has no name"),
        (&["--database", "eu 1=sqlite:one.db", "--database", "eu-2=sqlite:two.db"], "has no name"),
    ] {
        let ran = program.run(&[&["zone", "list"], list].concat());
        assert!(ran.code == 2 && ran.err.contains(told), "{list:?} {}", ran.err);
    }
    let checkpoint = program.run(&with(&["audit", "checkpoint"]));
    assert!(checkpoint.err.contains("is of one database"), "{}", checkpoint.err);
}

#[test]
fn a_database_is_added_and_a_bucket_is_moved() {
    let program = Program::new();
    program.ok(&with(&["migrate"]));
    program.ok(&with(&["zone", "set", "login", "--rate", "1", "--per", "1h"]));
    let keys: Vec<String> = (0..12).map(|n| format!("user:{n}")).collect();
    for key in &keys {
        program.ok(&with(&["check", "login", key]));
    }
    let grown = |stage: &str| {
        let third = format!("eu-3{stage}=sqlite:three.db");
        move |args: &[&str]| program_args(args, &third)
    };
    fn program_args(args: &[&str], third: &str) -> Vec<String> {
        [args, &LIST[..], &["--database", third]].concat().into_iter().map(str::to_owned).collect()
    }
    let run = |args: Vec<String>| program.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let naive = run(grown("")(&["migrate"]));
    assert!(naive.code == 2 && naive.err.contains("NAME/known"), "{}", naive.err);
    assert_eq!(run(grown("/known")(&["migrate"])).code, 0);
    assert!(program.ok(&["zone", "list", "--database", "sqlite:three.db"]).contains("login"));
    let known = run(grown("/known")(&["move"]));
    assert!(known.code == 2 && known.err.contains("eu-3/joining"), "{}", known.err);
    let untold = run(grown("/joining")(&["move"]));
    assert!(untold.code == 4 && untold.err.contains("tallygate migrate"), "{}", untold.err);
    assert_eq!(run(grown("/joining")(&["migrate"])).code, 0);
    let moved = run(grown("/joining")(&["move", "--format", "json"]));
    let told = moved.json();
    assert_eq!(told["among"], serde_json::json!(["eu-1", "eu-2", "eu-3"]), "{}", moved.err);
    assert!(told["moved"].as_u64().unwrap() > 0 && told["moved"] == told["rows"], "{told}");
    for key in &keys {
        assert_eq!(run(grown("")(&["check", "login", key])).code, 1, "{key}");
    }
    let again = run(grown("")(&["move"]));
    assert!(again.out.starts_with("moved 0 buckets"), "{}", again.out);
    let one = run(grown("")(&["move", "login", "user:0", "--to", "eu-1"]));
    let there = run(grown("")(&["move", "login", "user:0", "--to", "eu-2"]));
    assert!(
        one.code == 0 && there.out.contains("moved user:0 from eu-1 to eu-2"),
        "{} {}",
        one.out,
        there.out
    );
    assert_eq!(run(grown("")(&["audit", "verify"])).code, 0);
    let old = program.run(&with(&["check", "login", "user:0"]));
    assert!(old.code == 2 && old.err.contains("decides among"), "{}", old.err);
}

#[test]
fn a_server_decides_in_all_of_a_list() {
    let program = Program::new();
    program.ok(&with(&["zone", "set", "login", "--rate", "1", "--per", "1h"]));
    let server = Server::start(&program, &LIST);
    for n in 0..8 {
        let (key, ask) = (format!("user:{n}"), |key: &str| check(&server.at, key, Uuid::now_v7()).unwrap().1);
        assert_eq!([&ask(&key)["allowed"], &ask(&key)["allowed"]], [true, false], "{key}");
    }
    server.end();
    for database in ["sqlite:one.db", "sqlite:two.db"] {
        let lines = program.ok(&["history", "--database", database, "--zone", "login", "--format", "json"]);
        assert!(lines.contains("\"txn_id\""), "{database}");
    }
}
