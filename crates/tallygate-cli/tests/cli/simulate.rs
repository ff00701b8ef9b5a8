//! `tallygate simulate`: the answers that it prints, and the mistakes that it refuses.

use serde_json::Value;

use super::program::{Program, Ran};

const FIXED: &str = "rate=12,per=60s,algorithm=fixed-window";
const QUEUE: &str = "rate=12,per=60s,algorithm=leaky-queue";

/// A sliding log, a fixed window and a queue.
const THREE: [&str; 9] = ["simulate", "--rate", "12", "--per", "60s", "--policy", FIXED, "--policy", QUEUE];

fn three(flags: &[&'static str]) -> Vec<&'static str> {
    [&THREE[..], flags].concat()
}

fn figures<const N: usize>(told: &Value, names: [&str; N]) -> [i64; N] {
    names.map(|name| told[name].as_i64().unwrap())
}

#[test]
fn a_border_lets_twice_the_rate_through_a_fixed_window_and_a_queue_delays() {
    let ran = Program::new().run(&three(&["--shape", "border", "--format", "json"])).json();
    assert_eq!(ran[0]["traffic"], "border");
    let [log, fixed, queue] = [0, 1, 2].map(|n| &ran[0]["policies"][n]);
    assert_eq!(figures(log, ["offered", "passed", "blocked", "worst_window"]), [144, 36, 108, 12]);
    assert_eq!(figures(fixed, ["offered", "passed", "blocked", "worst_window"]), [144, 72, 72, 24]);
    let [passed, delayed, peak, wait_us] =
        figures(queue, ["passed", "delayed", "peak_per_second", "longest_wait_us"]);
    assert_eq!((passed - delayed, peak), (3, 1));
    assert!((50_000_000..=55_000_000).contains(&wait_us), "{wait_us}");
}

#[test]
fn the_table_fits_eighty_columns_and_says_what_each_client_got() {
    let program = Program::new().env("COLUMNS", "80");
    let text =
        program.run(&three(&["--policy", "rate=1000000,per=1h 30m,burst=20000,algorithm=token-bucket"])).out;
    for shape in ["steady", "burst", "border", "sine", "flood", "two-clients"] {
        assert!(text.contains(&format!("{shape}: ")), "{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("greedy 49 of 144, polite 23 of 36") && text.contains("0.88"), "{text}");
    assert!(!program.path("tallygate.db").exists(), "it needs no database");
}

#[test]
fn the_same_flags_make_the_same_page_which_stands_on_its_own() {
    let program = Program::new();
    let page = |seed| {
        program.ok(&three(&["--shape", "burst", "--html", "page.html", "--seed", seed]));
        std::fs::read_to_string(program.path("page.html")).unwrap()
    };
    let first = page("1");
    assert_eq!(first, page("1"));
    assert_ne!(first, page("2"));
    assert_eq!(first.matches("<figure>").count(), 3);
    for network in ["<script", "href=", "src=", "url(", "@import"] {
        assert!(!first.contains(network), "{network}");
    }
    for color in first.split(" stroke=\"#").skip(1).map(|rest| &rest[..6]) {
        assert!(first.contains(&format!("[stroke=\"#{color}\"]{{stroke:#")), "{color}");
    }
}

/// Runs it on these events.
fn on(events: &str) -> Ran {
    let program = Program::new();
    std::fs::write(program.path("e.csv"), events).unwrap();
    program.run(&[
        "simulate",
        "--events",
        "e.csv",
        "--any-time",
        "--rate",
        "2",
        "--per",
        "60s",
        "--format",
        "json",
    ])
}

#[test]
fn events_of_a_file_are_put_to_the_policy_key_by_key() {
    // Of which one is not in order, and one cannot be read.
    let told = on("at,key\n0,a\n2,a\n1,a\n2,b\nsoon,b\n60,a\n").json();
    let policy = &told[0]["policies"][0];
    let left_out = "e.csv; 1 line that cannot be read was left out, the first: e.csv, line 6: ";
    assert!(told[0]["traffic"].as_str().unwrap().starts_with(left_out), "{told}");
    assert_eq!(figures(policy, ["offered", "passed", "blocked", "worst_window", "keys"]), [5, 4, 1, 2, 2]);
}

#[test]
fn what_cannot_be_is_one_error_line_that_names_it() {
    for (flags, said) in [
        ("--rate 0 --per 60s --algorithm token-bucket", "rate 0 is out of range; use 1 to"),
        ("--rate 0 --per 60s", "the traffic's rate is 0; use 1 to 1000000"),
        ("--rate -1 --per 60s", "rate -1 is out of range; use 0 to"),
        ("--rate 5 --per 60s --offer 0", "the traffic's rate is 0; use 1 to 1000000"),
        ("--rate 5 --per 60s --offer -2", "the traffic's rate is -2; use 1 to 1000000"),
        ("--rate 5 --per 60s --offer 99999999999999999999", "use a whole number up to"),
        ("--rate 5 --per 60s --offer 900000", "use a lower rate or a shorter time"),
        ("--rate 5 --per 60s --for 0s", "length in microseconds is 0; use 1 to"),
        ("--rate 5 --per 60s --for 900000y", "9223372036854775807; use 1 to"),
        ("--rate 5 --per 60s --members 0", "number of members is 0; use 1 to"),
        ("--rate 5 --per 60s --shape zigzag", "invalid value 'zigzag' for '--shape <SHAPE>'"),
        ("--rate 5 --per 60s --slots 3", "slots"),
        ("--shape steady", "there is no policy to try"),
        ("--events none.csv --rate 5 --per 60s", "none.csv cannot be read"),
        ("--events none.csv --shape steady --rate 5 --per 60s", "cannot be used with '--shape <SHAPE>'"),
        ("--rate 5 --per 60s --html none/page.html", "there is no such directory"),
    ] {
        let ran = Program::new().run(&["simulate"].into_iter().chain(flags.split(' ')).collect::<Vec<_>>());
        assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (2, "", 1), "{flags}: {ran:?}");
        assert!(ran.err.contains(said), "{flags}: {}", ran.err);
    }
    for (events, said) in [
        ("at,key\nsoon,a\nlater,a\n", "e.csv, line 2: column at: \"soon\" cannot be used"),
        ("at,key\n0\n", "e.csv, line 2: 1 columns, but the header has 2"),
        ("at,key\n0,\n", "e.csv, line 2: column key: bucket key is empty"),
        ("when,key\n0,a\n", "e.csv has no column \"at\""),
    ] {
        let ran = on(events);
        assert!(ran.code == 2 && ran.err.contains(said) && ran.err.lines().count() == 1, "{ran:?}");
    }
    let many = on(&format!("at,key\n{}", "0,a\n".repeat(1_000_001)));
    assert!(many.err.contains("line 1000002: ") && many.err.contains("too many to simulate"), "{many:?}");
}

/// A page takes the place of what had its name; a device, a pipe or a socket is not a page's to take.
#[test]
#[cfg(unix)]
fn what_is_no_file_is_not_replaced_by_a_page() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("page.html");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let ran = Program::new().run(
        &three(&["--shape", "burst", "--html"])
            .into_iter()
            .chain([socket.to_str().unwrap()])
            .collect::<Vec<_>>(),
    );
    assert!(
        ran.code == 2 && ran.err.contains("page.html cannot be written: what is there is no file"),
        "{ran:?}"
    );
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
}

/// The pictures of docs/algorithms.md, each with the flags that draw it.
const PICTURES: [(&str, &[&str]); 2] = [
    (
        "borders.svg",
        &["--shape", "border", "--policy", FIXED, "--policy", "rate=12,per=60s,algorithm=sliding-counter"],
    ),
    (
        "bursts.svg",
        &[
            "--shape",
            "burst",
            "--shape",
            "flood",
            "--policy",
            "rate=12,per=60s,algorithm=token-bucket",
            "--policy",
            QUEUE,
        ],
    ),
];

/// With `TALLYGATE_GENERATE` set the new pictures take the place of those that are committed.
#[test]
fn the_pictures_of_what_gets_through_are_what_is_simulated() {
    let program = Program::new();
    let docs = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let document = std::fs::read_to_string(docs.join("algorithms.md")).unwrap();
    for (name, flags) in PICTURES {
        program.ok(&[&["simulate", "--rate", "12", "--per", "60s"], flags, &["--svg", name]].concat());
        let drawn = std::fs::read_to_string(program.path(name)).unwrap();
        let kept = docs.join("simulate").join(name);
        if std::env::var_os("TALLYGATE_GENERATE").is_some() {
            std::fs::write(&kept, &drawn).unwrap();
        }
        let hint = "it is out of date: run this test once with TALLYGATE_GENERATE=1";
        assert!(
            std::fs::read_to_string(&kept).is_ok_and(|kept| kept == drawn),
            "docs/simulate/{name}: {hint}"
        );
        assert!(document.contains(&format!("](simulate/{name})")), "docs/algorithms.md does not show {name}");
        assert!(document.contains(&flags.join(" ")), "docs/algorithms.md does not say how {name} is drawn");
        let charts = drawn.matches("<svg ").count();
        assert!(charts > 3 && charts == drawn.matches("</svg>").count(), "{name}");
    }
    assert_eq!(std::fs::read_dir(docs.join("simulate")).unwrap().count(), PICTURES.len());
    program
        .run(&["simulate", "--rate", "5", "--per", "1s", "--svg", "nowhere/x.svg"])
        .assert_refused("no such directory");
}
