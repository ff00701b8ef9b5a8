//! Completions, as a shell asks for them, and manual pages.

use std::net::TcpListener;
use std::process::Stdio;

use super::program::Program;

/// The words that bash would offer for the last of these.
fn offered(program: &Program, words: &[&str]) -> Vec<String> {
    let mut command = program.command(&[&["--", "tallygate"], words].concat());
    command
        .env("TALLYGATE_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn completions_know_the_commands_their_flags_and_words() {
    let program = Program::new();
    assert_eq!(offered(&program, &["hist"]), ["history"]);
    assert_eq!(offered(&program, &["audit", "expl"]), ["explain"]);
    assert_eq!(offered(&program, &["zone", "set", "login", "--algorithm", "conc"]), ["concurrency"]);
    assert!(offered(&program, &["check", "--"]).contains(&"--cost".to_owned()));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = program.run(&["completions", shell]);
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("TALLYGATE_COMPLETE") && ran.out.contains("/tallygate"), "{}", ran.out);
    }
}

#[test]
fn completions_know_the_zones_of_the_database() {
    let program = Program::with_login().env("TALLYGATE_DATABASE_URL", "sqlite:tallygate.db");
    program.ok(&["zone", "set", "logout", "--rate", "5", "--per", "60s"]);
    program.ok(&["zone", "set", "payments", "--rate", "5", "--per", "60s"]);
    for words in [
        &["check"][..],
        &["zone", "show"],
        &["zone", "set"],
        &["ban"],
        &["erase"],
        &["history", "--zone"],
        &["audit", "explain", "--key", "user:42", "--zone"],
        &["backtest", "--from-ledger"],
    ] {
        assert_eq!(offered(&program, &[words, &["log"]].concat()), ["login", "logout"], "{words:?}");
    }
    assert_eq!(offered(&program, &["history", "--key", "log"]), [""; 0]);
}

#[test]
fn a_database_that_is_not_there_or_does_not_answer_completes_nothing() {
    let program = Program::new();
    assert_eq!(offered(&program, &["check", ""]).iter().filter(|word| !word.starts_with('-')).count(), 0);
    assert!(!program.path("tallygate.db").exists());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("postgres://alice:s3cret@{}/app", listener.local_addr().unwrap());
    for url in [silent.as_str(), "postgres://127.0.0.1:1/app", "s3cret"] {
        let program = Program::new().env("TALLYGATE_DATABASE_URL", url);
        assert_eq!(offered(&program, &["check", "log"]), [""; 0]);
    }
}

#[test]
fn bash_completes_by_the_script_that_is_printed() {
    let program = Program::with_login();
    let line = "eval \"$(tallygate completions bash)\"
        COMP_WORDS=(tallygate check lo) COMP_CWORD=2
        _clap_complete_tallygate tallygate lo check
        echo \"${COMPREPLY[@]}\"";
    let mut command = program.shell("bash -c \"$LINE\"");
    command.env("LINE", line).env("TALLYGATE_DATABASE_URL", "sqlite:tallygate.db");
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "login", "{:?}", output.stderr);
}

#[test]
fn each_command_has_a_manual_page_with_the_words_of_its_help() {
    let program = Program::new();
    program.ok(&["man", "pages"]);
    let page = |name: &str| std::fs::read_to_string(program.path("pages").join(name)).unwrap();
    assert!(page("tallygate.1").contains("tallygate\\-check(1)"));
    for (command, words) in [
        (&["check"][..], "the zone\\*(Aqs unit"),
        (&["zone", "set"], "\\-\\-algorithm"),
        (&["audit", "explain"], "\n  tallygate audit explain \\-\\-key card:9f3c"),
    ] {
        let page = page(&format!("tallygate-{}.1", command.join("-")));
        let help = program.ok(&[command, &["--help"]].concat());
        let about = help.lines().next().unwrap();
        assert!(page.contains(about) && page.contains(".SH EXAMPLES\n.nf\n"), "{about}\n{page}");
        assert!(page.contains(words), "{words}\n{page}");
    }
    std::fs::write(program.path("file"), "").unwrap();
    program.run(&["man", "file/pages"]).assert_refused("file/pages");
}
