use super::program::Program;

const VOLUMES: &str = "starts_at,zone,checks,allowed,blocked,soft,shadowed,coalesced,unchecked";

/// 5 allowed and 2 blocked for a hostile key, 1 allowed for `b`, and what people did.
fn decided() -> Program {
    let program = Program::with_login();
    for key in ["<script>alert(1)</script>"; 7].into_iter().chain(["b"]) {
        program.run(&["check", "login", key]);
    }
    program.ok(&["zone", "set", "other", "--rate", "3", "--per", "60s", "--description", "<b>&\"'"]);
    program.ok(&["ban", "login", "c", "--for", "1h", "--note", "</td><img src=x>", "--by", "dora"]);
    program
}

fn report(program: &Program, args: &[&str]) -> String {
    program.ok(&[&["audit", "report", "--since", "1h"], args].concat())
}

#[test]
fn each_format_says_the_same() {
    let program = decided();
    let json: serde_json::Value = serde_json::from_str(&report(&program, &["--format", "json"])).unwrap();
    assert_eq!((&json["rows"], &json["grain"]), (&9.into(), &"minute".into()));
    let login = &json["zones"][0];
    assert_eq!(
        (&login["zone"], &login["checks"], &login["blocked"]),
        (&"login".into(), &8.into(), &2.into())
    );
    assert_eq!((&login["blocked_share"], &login["reasons"]["over_limit"]), (&0.25.into(), &2.into()));
    assert_eq!(json["blocked_most"]["exact"], true);
    assert_eq!(json["blocked_most"]["buckets"][0]["key"], "<script>alert(1)</script>");
    assert_eq!(json["near_limit"]["buckets"][0]["key"], "b");
    assert_eq!(json["actions"]["newest"][0]["actor"], "dora");
    assert_eq!(json["changes"].as_array().unwrap().len(), 2);

    let csv = report(&program, &["--format", "csv"]);
    assert_eq!(csv.lines().next().unwrap(), VOLUMES);
    let sum = |column: &str| -> u64 {
        let n = VOLUMES.split(',').position(|name| name == column).unwrap();
        csv.lines().skip(1).map(|line| line.split(',').nth(n).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum("checks"), sum("allowed"), sum("blocked")), (8, 6, 2));
    let volumes = json["volumes"].as_array().unwrap();
    assert_eq!(csv.lines().count() - 1, volumes.len());
    assert!(csv.lines().nth(1).unwrap().starts_with(volumes[0]["starts_at"].as_str().unwrap()), "{csv}");

    let text = report(&program, &[]);
    for part in ["9 rows of the ledger", "25.0 %", "<script>alert(1)</script>", "dora", "1 of 5", "4 of 5"] {
        let there = text.contains(part);
        assert_eq!(there, part != "1 of 5", "{part} in {text}");
    }
    // A time that ends a moment after it was asked for is as long as it was asked for.
    for (since, grain) in [("3h", "minute"), ("4h", "hour"), ("14d", "hour"), ("15d", "day")] {
        let json = program.run(&["audit", "report", "--since", since, "--format", "json"]).json();
        assert_eq!(json["grain"], grain, "{since}");
    }
    let other = report(&program, &["--zone", "other"]);
    assert!(other.contains("no bucket was blocked") && !other.contains("login"), "{other}");
}

#[test]
fn the_page_stands_alone_and_shows_what_is_hostile_as_text() {
    let program = decided();
    assert_eq!(report(&program, &["--html", "report.html"]), "wrote report.html\n");
    let html = std::fs::read_to_string(program.path("report.html")).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(html.contains("&lt;/td&gt;&lt;img src=x&gt;"));
    for markup in ["<script", "<img", "<link", "http://", "https://", "url("] {
        // The name of the SVG dialect is no address that anything is read from.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(markup), "{markup}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    // The volumes, the share; the one zone with checks needs no chart of its own.
    assert_eq!(html.matches("<figure>").count(), 2);
    assert_eq!(
        html.matches("<rect").count() - html.matches("<rect width=\"11\"").count(),
        3,
        "one bar of two parts, one share"
    );

    // A file that is there is replaced.
    std::fs::write(program.path("report.html"), "x".repeat(1_000_000)).unwrap();
    report(&program, &["--html", "report.html"]);
    assert!(std::fs::metadata(program.path("report.html")).unwrap().len() < 100_000);
}

#[test]
fn an_empty_ledger_has_a_report_too() {
    let program = Program::new();
    program.ok(&["migrate"]);
    let text = program.ok(&["audit", "report"]);
    assert!(text.contains("0 rows of the ledger") && text.contains("there are no zones"), "{text}");
    assert_eq!(program.ok(&["audit", "report", "--format", "csv"]), format!("{VOLUMES}\n"));
    let json = program.run(&["audit", "report", "--format", "json"]).json();
    assert_eq!((&json["rows"], &json["grain"]), (&0.into(), &"day".into()));
    program.ok(&["audit", "report", "--html", "report.html"]);
    let html = std::fs::read_to_string(program.path("report.html")).unwrap();
    assert!(html.contains("No checks were decided."), "{html}");
}

#[test]
fn what_cannot_be_reported_is_one_error_line_and_leaves_no_file() {
    let program = Program::with_login();
    for (args, because) in [
        (&["--zone", "nowhere"][..], "nowhere"),
        (&["--since", "1h", "--until", "2h"], "swap them"),
        (&["--since", "noon"], "yesterday"),
        (&["--top", "0"], "'0'"),
        (&["--top", "1001"], "1001"),
        (&["--format", "xml"], "xml"),
        (&["--html", "report.html", "--format", "json"], "--format"),
        (&["--html", "no/such/directory/report.html"], "no/such/directory/report.html cannot be written"),
        (&["--html", "."], ". cannot be written"),
        (&["--zone", "nowhere", "--html", "report.html"], "nowhere"),
    ] {
        program.run(&[&["audit", "report"], args].concat()).assert_refused(because);
    }
    assert!(!program.path("report.html").exists());
    std::fs::write(program.path("kept.html"), "kept").unwrap();
    program.run(&["audit", "report", "--zone", "nowhere", "--html", "kept.html"]).assert_refused("nowhere");
    assert_eq!(std::fs::read_to_string(program.path("kept.html")).unwrap(), "kept");
}

/// Keys and notes are in them. A link may have been laid there by somebody else.
#[test]
fn pages_and_exports_are_their_owners_alone_and_no_link_is_written_through() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let program = Program::with_login();
    program.ok(&["check", "login", "42"]);
    std::fs::write(program.path("events.csv"), "at,key\n0,a\n").unwrap();
    std::fs::write(program.path("victim"), "kept").unwrap();
    for name in ["report.html", "report.html.partial", "backtest.html", "backtest.html.partial"] {
        symlink(program.path("victim"), program.path(name)).unwrap();
    }
    program.ok(&["audit", "report", "--html", "report.html"]);
    program.ok(&["backtest", "events.csv", "--rate", "5", "--per", "60s", "--html", "backtest.html"]);
    program.ok(&["audit", "export", "--to", "out", "--until", "2000-01-01T00:00:00Z"]);
    assert_eq!(std::fs::read_to_string(program.path("victim")).unwrap(), "kept");
    for file in ["report.html", "backtest.html", "out/manifest.json"] {
        let found = std::fs::symlink_metadata(program.path(file)).unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600, "{file}: {found:?}");
    }
    assert!(!program.path("report.html.partial").exists());
}
