use super::program::Program;

const VOLUMES: &str = "starts_at,zone,checks,allowed,blocked,soft,shadowed,coalesced,unchecked";

/// 5 allowed and 2 blocked for a hostile key, 1 allowed for `b`, and acts of people.
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
    assert!(text(&html).contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(text(&html).contains("&lt;/td&gt;&lt;img src=x&gt;"));
    for markup in ["<script", "<img", "<link", "http://", "https://", "url("] {
        // A pattern of the page itself is read from nowhere else.
        assert!(!html.replace("url(#", "").contains(markup), "{markup}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    // The charts are the volumes and the share; the one zone with checks needs no chart of its own.
    assert_eq!(html.matches("<figure>").count(), 2);
    // Sections without rows are not there, and those that are there are in the table of contents.
    assert!(!html.contains("Shadowed most") && !html.contains("Refunds"), "{html}");
    for heading in
        ["Over time", "Zones", "Reasons", "Blocked most", "Near the limit", "Actions", "In numbers"]
    {
        assert_eq!(html.matches(&format!(">{heading}</")).count(), 2, "{heading}");
    }
    // Bars and buckets lead to rows that are there.
    let mut titles = html.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap());
    assert!(html.contains("<a href=\"#at-") && titles.any(|title| title.contains(" allowed")), "{html}");
    assert_leads(&html);

    // A file that is there is replaced.
    std::fs::write(program.path("report.html"), "x".repeat(1_000_000)).unwrap();
    report(&program, &["--html", "report.html"]);
    assert!(std::fs::metadata(program.path("report.html")).unwrap().len() < 100_000);
}

/// A page without the marks of where a word may be broken.
fn text(html: &str) -> String {
    ["<wbr>", "<span class=\"whole\">", "<span class=\"long\">", "</span>"]
        .iter()
        .fold(html.to_owned(), |html, mark| html.replace(mark, ""))
}

/// Every link of a page leads to a place of its own.
fn assert_leads(html: &str) {
    let links = html.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for to in links {
        let id = to.strip_prefix('#').unwrap_or_else(|| panic!("{to} leads out of the page"));
        assert_eq!(html.matches(&format!(" id=\"{id}\"")).count(), 1, "{to}");
    }
}

#[test]
fn a_page_says_who_made_it_of_what_and_explains_what_it_names() {
    let program = decided();
    let page = |args: &[&str]| {
        report(&program, &[&["--html", "report.html"], args].concat());
        std::fs::read_to_string(program.path("report.html")).unwrap()
    };
    let html = page(&[]);
    assert!(
        html.contains("Report of sqlite:tallygate.db") && html.contains(" by tester with tallygate "),
        "{html}"
    );
    assert!(html.contains("nothing is compared"), "{html}");
    // Of the key that was blocked its last check, of the other one its only one, and the ban.
    let decisions = program.run(&["history", "--zone", "login", "--format", "json", "--limit", "100"]).json();
    let last = decisions.as_array().unwrap().iter().find(|row| row["blocked"] == true).unwrap()["txn_id"]
        .as_str()
        .unwrap();
    assert!(
        html.contains(&format!("<a href=\"#txn-{last}\">"))
            && html.contains(&format!("<h3 id=\"txn-{last}\">")),
        "{html}"
    );
    assert!(
        html.contains("It was blocked, since nothing was left.")
            && html.contains("Each transaction that is named above.")
    );
    assert_leads(&html);

    let html = page(&["--explain", "1", "--by", "<b>auditor"]);
    assert!(text(&html).contains("by &lt;b&gt;auditor with"), "{html}");
    assert!(html.contains("Explained are 1 of the 3 transactions that are named above."), "{html}");
    assert_eq!(html.matches("<h3 id=\"txn-").count(), 1);
    assert_leads(&html);
    // The ids are there all the same.
    let html = page(&["--explain", "0"]);
    assert!(!html.contains("href=\"#txn-") && !html.contains("Explanations"), "{html}");
    assert!(html.replace("<wbr>", "").contains(last), "{html}");
}

#[test]
fn the_time_before_stands_beside_a_report() {
    let program = decided();
    let now = chrono::Utc::now();
    let time = |seconds: i64| (now + chrono::TimeDelta::seconds(seconds)).to_rfc3339();
    let (since, until) = (time(60), time(4_000));
    let of_later = ["audit", "report", "--since", &since, "--until", &until];
    let json = program.run(&[&of_later[..], &["--format", "json"]].concat()).json();
    assert_eq!((&json["rows"], &json["before"]["zones"][0]["checks"]), (&0.into(), &8.into()));
    assert_eq!(json["before"]["until"], json["since"]);
    let text = program.ok(&of_later);
    assert!(text.contains("  0 checks  -100 % from 8\n"), "{text}");
}

/// Text that a stranger typed changes neither the reading of a page nor the work of a spreadsheet.
#[test]
fn forged_keys_and_notes_harm_no_reader() {
    const FORGED: [&str; 6] = [
        "user:admin\u{202e}gpj.exe",
        "us\u{200b}er\u{feff}",
        "\"><img src=x onerror=alert(1)>",
        "</title></style><h1>gone</h1>",
        "=HYPERLINK(\"http://evil.example\")",
        "\u{2066}@SUM(1)\u{2069}",
    ];
    let program = Program::with_login();
    for key in FORGED {
        let lines = format!("{}\n", serde_json::json!({ "zone": "login", "key": key, "cost": 6 })).repeat(2);
        assert_eq!(program.feed(&["check", "--stdin"], lines).code, 0);
        program.ok(&["ban", "login", key, "--for", "1h", "--by", key, "--note", key]);
    }
    std::fs::write(program.path("a\u{202e}<b>.csv"), "at,key\n20260131,<i>\u{200b}\n20260131,<i>\u{200b}\n")
        .unwrap();
    report(&program, &["--html", "report.html"]);
    program.ok(&["backtest", "a\u{202e}<b>.csv", "--rate", "1", "--per", "60s", "--html", "backtest.html"]);
    for page in ["report.html", "backtest.html"] {
        let html = std::fs::read_to_string(program.path(page)).unwrap();
        for unseen in ['\u{200b}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}'] {
            assert!(!html.contains(unseen), "{page}: {unseen:?}");
        }
        for markup in ["<img", "<h1>gone", "</title></style>", "<b>.csv", "<i>"] {
            assert!(!html.contains(markup), "{page}: {markup}");
        }
        assert_eq!((html.matches("<h1>").count(), html.matches("</style>").count()), (1, 1));
        // They are shown all the same, by their numbers.
        assert!(html.contains("\\u{202e}"), "{page}");
    }
    let csv = program.ok(&["history", "--zone", "login", "--format", "csv"]);
    assert!(csv.contains("\"'=HYPERLINK(") && !csv.contains("\"=HYPERLINK("), "{csv}");
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

/// Keys and notes are in the files. A link may have been laid there by somebody else.
#[test]
fn pages_and_exports_are_their_owners_alone_and_no_link_is_written_through() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let program = Program::with_login();
    program.ok(&["check", "login", "42"]);
    std::fs::write(program.path("events.csv"), "at,key\n20260131,a\n").unwrap();
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
