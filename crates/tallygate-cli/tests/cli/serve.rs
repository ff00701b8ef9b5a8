//! `tallygate serve` and `tallygate token`, and the session of docs/server.md as it stands there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use tokio::net::TcpSocket;
use uuid::Uuid;

use super::program::Program;

/// A server that is killed where a test ends before it.
pub struct Server {
    child: Child,
    /// `127.0.0.1:41234`.
    pub at: String,
    welcome: String,
    /// The lines that it says after its welcome, to its end.
    log: Option<JoinHandle<String>>,
}

impl Server {
    pub fn start(program: &Program, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        let mut child = program.command(&args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut welcome = String::new();
        // A line for people without tokens has two more after it.
        let is_alone = args.contains(&"--tokens") || args.contains(&"json");
        for _ in 0..if is_alone { 1 } else { 3 } {
            lines.read_line(&mut welcome).unwrap();
        }
        let said =
            serde_json::from_str::<Value>(&welcome).map(|line| line["message"].as_str().unwrap().to_owned());
        let said = said.unwrap_or_else(|_| welcome.clone());
        let at = said.lines().next().and_then(|line| line.strip_prefix("serving http://"));
        let at = at.unwrap_or_else(|| panic!("{welcome}")).to_owned();
        let log = thread::spawn(move || {
            let mut log = String::new();
            lines.read_to_string(&mut log).ok();
            log
        });
        Self { child, at, welcome, log: Some(log) }
    }

    /// Tells it to end, and returns the lines that it said.
    pub fn end(mut self) -> String {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.log.take().unwrap().join().unwrap()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The status and the body; None where no whole answer came.
pub fn check(at: &str, key: &str, txn: Uuid) -> Option<(u16, Value)> {
    let body = format!("{{\"zone\":\"login\",\"key\":\"{key}\"}}");
    let mut stream = TcpStream::connect(at).ok()?;
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {txn}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?))
}

#[test]
fn the_session_of_the_document_runs_as_it_is_shown() {
    let program = Program::new();
    let document = include_str!("../../../../docs/server.md");
    let mut server: Option<Server> = None;
    let mut shown = document.lines().peekable();
    let (mut ran, mut in_session) = (0, false);
    while let Some(line) = shown.next() {
        in_session = match line {
            "```console" => true,
            "```" => false,
            _ => in_session,
        };
        let Some(command) = line.strip_prefix("$ ").filter(|_| in_session) else { continue };
        let mut expected = Vec::new();
        while let Some(line) = shown.next_if(|line| !line.starts_with("$ ") && *line != "```") {
            expected.push(line);
        }
        let printed = if command == "tallygate serve &" {
            let server = server.insert(Server::start(&program, &[]));
            server.welcome.replace(&server.at, "127.0.0.1:7411")
        } else {
            let at = server.as_ref().map_or_else(String::new, |server| server.at.clone());
            let mut shell = program.shell(&command.replace("localhost:7411", &at));
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}; it needs curl of 7.82 or later");
            String::from_utf8(output.stdout).unwrap()
        };
        let printed: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(printed.len(), expected.len(), "{command}: {printed:#?}");
        for (printed, expected) in printed.iter().zip(expected) {
            assert!(is_like(expected, printed), "{command}\nshown:   {expected}\nprinted: {printed}");
        }
        ran += 1;
    }
    assert!(ran >= 14, "only {ran} commands were found");
}

/// Is a line as shown, where `…` stands for anything?
fn is_like(shown: &str, printed: &str) -> bool {
    let parts: Vec<_> = shown.split('…').collect();
    let mut rest = printed;
    for (n, part) in parts.iter().enumerate() {
        let at = if n == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        match at {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    parts.len() == 1 && rest.is_empty() || parts.len() > 1 && printed.ends_with(parts[parts.len() - 1])
}

/// Every answer that a client received is in the ledger, and a check that is asked again under its name is charged once.
#[test]
fn a_killed_server_keeps_every_answer_that_it_gave() {
    let rounds = if std::env::var_os("TALLYGATE_SOAK").is_some() { 20 } else { 2 };
    let program = Program::new();
    program.ok(&["zone", "set", "login", "--rate", "1000000", "--per", "24h"]);
    let mut asked = 0;
    for _ in 0..rounds {
        let mut server = Server::start(&program, &[]);
        let (answered, at) = (Arc::new(AtomicUsize::new(0)), server.at.clone());
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (answered, at) = (Arc::clone(&answered), at.clone());
                thread::spawn(move || {
                    let mut told = Vec::new();
                    for n in 0.. {
                        let (key, txn) = (format!("{}", (caller + n) % 5), Uuid::now_v7());
                        let answer = check(&at, &key, txn);
                        let is_over = answer.is_none();
                        told.push((key, txn, answer));
                        if is_over {
                            break;
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    told
                })
            })
            .collect();
        while answered.load(Ordering::Relaxed) < 100 {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended by itself");
            thread::yield_now();
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let told: Vec<_> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        let server = Server::start(&program, &[]);
        for (key, txn, answer) in &told {
            let (status, again) = check(&server.at, key, *txn).unwrap();
            assert_eq!(status, 200);
            if let Some((status, answer)) = answer {
                assert_eq!(*status, 200);
                assert_eq!(
                    (&again["replayed"], &again["seq"]),
                    (&Value::Bool(true), &answer["seq"]),
                    "{txn}"
                );
                assert_eq!(again["decided_at"], answer["decided_at"]);
            }
        }
        asked += told.len();
        drop(server);
        assert_eq!(program.rows(), asked, "a row for each transaction, and no other");
    }
    program.ok(&["audit", "verify"]);
}

/// Half a request comes, as long as a head may be, from each of more connections than the server has at once.
#[test]
fn a_flood_of_half_requests_takes_bounded_memory_and_others_are_answered() {
    const AT_ONCE: usize = 1_200;
    const HEAD: usize = 16_384;
    let waves = if std::env::var_os("TALLYGATE_SOAK").is_some() { 84 } else { 3 };
    let program = Program::new();
    program.ok(&["zone", "set", "login", "--rate", "1000000", "--per", "60s"]);
    let limits = format!(
        "limits = {{ connections = 1000, connections_per_peer = 400, head_s = 1, head_bytes = {HEAD} }}"
    );
    std::fs::write(program.path("tallygate.toml"), limits).unwrap();
    let server = Server::start(&program, &["--config", "tallygate.toml"]);
    let most_kib = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        most.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    assert_eq!(check(&server.at, "before", Uuid::now_v7()).unwrap().0, 200);
    let before = most_kib();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect_from = |last: u8| {
        let connected = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 1, last], 0).into()).unwrap();
            socket.connect(server.at.parse().unwrap()).await
        });
        let stream = connected.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    };
    let half = format!("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(HEAD - 100));
    let mut opened = 0;
    for wave in 0..waves {
        // Two addresses, so that not every place is theirs.
        let half_requests: Vec<_> = (0..AT_ONCE)
            .filter_map(|n| {
                let mut stream = connect_from(1 + (n % 2) as u8);
                stream.write_all(half.as_bytes()).ok().map(|()| stream)
            })
            .collect();
        opened += AT_ONCE;
        let (status, answer) = check(&server.at, "meanwhile", Uuid::now_v7()).unwrap();
        assert_eq!((status, &answer["allowed"]), (200, &Value::Bool(true)), "wave {wave}");
        for mut stream in half_requests {
            stream.read_to_end(&mut Vec::new()).ok(); // until it is let go
        }
    }
    let more = most_kib() - before;
    println!("{opened} half requests took {more} KiB more, at most");
    // Each of 800 connections has its head, as much again for the buffer's growth, and the rest of a connection.
    assert!(more < 800 * (2 * HEAD + 16_384) / 1_024, "{more} KiB more");
}

#[test]
fn sigterm_ends_it_and_sighup_reads_its_files_again() {
    let program = Program::new();
    std::fs::write(program.path("zones.toml"), "zone.login = { rate = 1, per = '60s' }").unwrap();
    let server = Server::start(&program, &["--zones", "zones.toml"]);
    assert_eq!(check(&server.at, "a", Uuid::now_v7()).unwrap().1["limit"], 1);
    std::fs::write(program.path("zones.toml"), "zone.login = { rate = 7, per = '60s' }").unwrap();
    server.signal("-HUP");
    while check(&server.at, "b", Uuid::now_v7()).unwrap().1["limit"] != 7 {
        thread::yield_now();
    }
    server.end();
}

/// An operator goes from an alert to the log, from there to the ledger and to the caller's trace.
#[test]
fn what_is_seen_from_outside_leads_to_the_ledger() {
    let program = Program::with_login().env("RUST_LOG", "tallygate_server=info");
    let server = Server::start(&program, &["--log-format", "json"]);
    let shell = |line: String| String::from_utf8(program.told(&line).stdout).unwrap();
    let finished = |at: &str| {
        let metrics = shell(format!("curl -s {at}/metrics"));
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tallygate_maintain_finished_timestamp_seconds "));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    let seen = |at: &str| loop {
        match finished(at) {
            Some(seconds) => break seconds,
            None => thread::yield_now(),
        }
    };
    assert_eq!(seen(&server.at), 0.0, "maintain has never run");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let decided = shell(format!(
        "curl -s {}/v1/check -H 'traceparent: 00-{trace}-00f067aa0ba902b7-01' --json '{{\"zone\":\"login\",\"key\":\"user:42\"}}'",
        server.at
    ));
    let decided: Value = serde_json::from_str(&decided).unwrap();
    server.signal("-HUP");
    let log = server.end();
    assert!(!log.contains("user:42"), "{log}");
    // Each line is an object, also of what the server says of its own life.
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "ending; what was accepted is answered"), "{log}");
    let line = lines.into_iter().find(|line| line["route"] == "/v1/check").unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (&line["status"], &line["method"], &line["message"]),
        (&200.into(), &"POST".into(), &"request".into())
    );
    assert_eq!((&line["span"]["trace_id"], &line["txn"]), (&trace.into(), &decided["txn_id"]));
    let rows = program.ok(&["history", "--txn", line["txn"].as_str().unwrap(), "--format", "json"]);
    assert!(rows.contains("user:42"), "{rows}");

    program.ok(&["maintain"]);
    let server = Server::start(&program, &[]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..600.0).contains(&(now - seen(&server.at))), "{now}");
}

#[test]
fn a_server_goes_on_where_nobody_reads_what_it_says() {
    let program = Program::with_login().env("RUST_LOG", "tallygate_server=info");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program.command(&["serve", "--listen", "unix:here"]);
    let mut child = command.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
    let ask =
        "curl -s --unix-socket here http://localhost/v1/check --json '{\"zone\":\"login\",\"key\":\"a\"}'";
    let mut answered = 0;
    while answered < 5 {
        assert_eq!(child.try_wait().unwrap(), None, "it serves");
        let output = program.told(ask);
        answered += usize::from(output.stdout.starts_with(b"{\"allowed\":true"));
    }
    let signal = |signal: &str| {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    };
    signal("-HUP");
    signal("-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_waits_for_its_database_and_ends_as_every_command_does() {
    let program = Program::new();
    let nobody = ["serve", "--listen", "127.0.0.1:0", "--database", "postgres://app@127.0.0.1:1/app"];
    let mut child = program.command(&nobody).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("waiting for the database") && line.contains("127.0.0.1"), "{line}");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    program.ok(&["migrate"]);
    program.tamper(
        "insert into tallygate_schema_history values (91, 'breaking_future', '2026-01-01T00:00:00Z', '1')",
    );
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    program.run(&serve).assert_ends(4, "since version 91");
    let ran = program.run(&[&serve[..], &["--log-format", "json"]].concat());
    let line: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &line["level"]), (4, &json!("ERROR")), "{ran:?}");
}

#[test]
fn settings_are_printed_checked_and_refused_by_name() {
    let program = Program::new();
    let defaults = program.ok(&["serve", "--print-config"]);
    std::fs::write(program.path("tallygate.toml"), &defaults).unwrap();
    let check = ["serve", "--config", "tallygate.toml", "--check-config"];
    assert_eq!(program.ok(&check), "the settings are good\n");
    for (wrong, told) in [
        (defaults.replace("head_s = 10", "head_s = 0"), "limits.head_s = 0"),
        (defaults.replace("head_s", "head_seconds"), "head_seconds"),
        (defaults.replace("# tokens =", "tokens ="), "tokens.toml cannot be read"),
        (defaults.replace("# zones =", "zones ="), "zones.toml cannot be read"),
    ] {
        std::fs::write(program.path("tallygate.toml"), wrong).unwrap();
        let ran = program.run(&check);
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{ran:?}");
        assert!(ran.err.contains(told), "{}", ran.err);
    }
    // Nothing is told of a file that is named by mistake but that it is none.
    std::fs::write(program.path("shadow"), "root:s3cret:19000:0:99999:7:::\n").unwrap();
    for named in ["zones", "tokens", "envoy.mapping"] {
        std::fs::write(program.path("tallygate.toml"), format!("{named} = 'shadow'\n")).unwrap();
        let ran = program.run(&check);
        assert!(ran.code == 2 && ran.err.contains("line 1: ") && !ran.err.contains("s3cret"), "{ran:?}");
    }
    let ran = program.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(ran.code == 2 && ran.err.contains("without tokens"), "{ran:?}");
    let ran = program.run(&["serve", "--listen", "nowhere"]);
    assert!(ran.code == 2 && ran.err.contains("\"nowhere\""), "{ran:?}");
}

#[test]
fn what_envoys_limiter_was_told_is_served_by_this_one() {
    let program = Program::new();
    let theirs = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 1 }\n  \
                  - key: card\n    value: \"4*\"\n    rate_limit: { unit: day, requests_per_unit: 1 }\n";
    std::fs::write(program.path("theirs.yaml"), theirs).unwrap();
    let import = ["import", "envoy-ratelimit", "theirs.yaml"];
    let told = program.run(&import);
    assert!(told.code == 0 && told.err.starts_with("note: ") && told.err.contains("4*"), "{told:?}");
    let json: Value =
        serde_json::from_str(&program.ok(&[&import[..], &["--format", "json"]].concat())).unwrap();
    for name in ["mapping", "zones"] {
        assert!(told.out.contains(json[name].as_str().unwrap()), "{told:?}");
        std::fs::write(program.path(&format!("{name}.toml")), json[name].as_str().unwrap()).unwrap();
    }
    let settings = "[envoy]\nlisten = \"nowhere\"\nmapping = \"mapping.toml\"";
    std::fs::write(program.path("tallygate.toml"), settings).unwrap();
    let addresses = ["--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let files = ["--config", "tallygate.toml", "--zones", "zones.toml"];
    let server = Server::start(&program, &[files, addresses].concat());
    let lines: Vec<_> = server.welcome.lines().collect();
    assert!(lines[1].starts_with("envoy:   http://127.0.0.1:"), "{lines:?}");
    assert!(lines[2].starts_with("admin:   http://127.0.0.1:"), "{lines:?}");
    program.run(&["serve", "--grpc", "127.0.0.1:0"]).assert_refused("[envoy] mapping");
    let ask = || {
        let asked = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"7"}]}]}"#;
        let line = format!("curl -s -o /dev/null -w '%{{http_code}}' {}/json --json '{asked}'", server.at);
        String::from_utf8(program.shell(&line).output().unwrap().stdout).unwrap()
    };
    assert_eq!((ask().as_str(), ask().as_str()), ("200", "429"));
    let other = theirs.replace("shop", "bank");
    std::fs::write(program.path("others.yaml"), &other).unwrap();
    let both = program.run(&[&import[..], &["others.yaml", "--format", "json"]].concat()).json();
    let mapping = tallygate_envoy::Mapping::read(both["mapping"].as_str().unwrap()).unwrap();
    assert_eq!(mapping.zones().collect::<Vec<_>>(), ["bank:user", "shop:user"]);
    assert_eq!(tallygate::policy::zone_file(both["zones"].as_str().unwrap()).unwrap().len(), 2);
    program
        .run(&[&import[..], &["theirs.yaml"]].concat())
        .assert_refused("domain \"shop\" is that of a file before it");
    std::fs::write(program.path("theirs.yaml"), "domain: [").unwrap();
    let refused = program.run(&import);
    assert!(refused.code == 2 && refused.err.contains("theirs.yaml"), "{refused:?}");
}

#[test]
fn a_token_is_printed_once_and_its_file_is_private() {
    let program = Program::new();
    let add = |name: &str| program.run(&["token", "add", name, "--role", "app", "--zones", "log*"]);
    let secret = add("web").out.trim().to_owned();
    let file = || std::fs::read_to_string(program.path("tokens.toml")).unwrap();
    assert!(secret.starts_with("tg_") && secret.len() == 67, "{secret}");
    assert!(!file().contains(&secret[3..]));
    let mode = std::fs::metadata(program.path("tokens.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // With the same name again, or a role that does not exist, the file stays as it was.
    let before = file();
    for ran in [
        add("web"),
        add("a b"),
        program.run(&["token", "add", "x", "--role", "root", "--zones", "*"]),
        program.run(&["token", "add", "x", "--role", "app"]),
    ] {
        assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (2, "", 1), "{ran:?}");
    }
    assert_eq!(file(), before);
    assert_ne!(add("other").out.trim(), secret);
    program.ok(&["token", "add", "scraper", "--role", "metrics", "--zones", "*"]);
    std::fs::write(program.path("tokens.toml"), "nonsense").unwrap();
    assert_eq!(add("third").code, 2);
    assert_eq!(file(), "nonsense");
}

#[test]
fn tokens_are_listed_and_removed_and_what_else_stands_in_the_file_stays() {
    let program = Program::new();
    let token = |args: &[&str]| program.run(&[&["token"], args].concat());
    let file = || std::fs::read_to_string(program.path("tokens.toml")).unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    std::fs::write(program.path("shop.pem"), pem).unwrap();
    let secret = token(&["add", "web", "--role", "app", "--zones", "log*", "--band", "sheddable-plus"])
        .out
        .trim()
        .to_owned();
    let shop = ["add", "shop", "--role", "app", "--role", "auditor", "--zones", "*", "--certificate"];
    token(&[&shop[..], &["nowhere.pem"]].concat()).assert_refused("nowhere.pem cannot be read");
    token(&[&shop[..], &["tokens.toml"]].concat()).assert_refused("tokens.toml has no certificate");
    let added = token(&[&shop[..], &["shop.pem"]].concat());
    assert_eq!((added.code, added.out.as_str()), (0, "added  shop\n"));
    std::fs::write(program.path("tokens.toml"), format!("# ours\n\n{}# the end\n", file())).unwrap();

    let (table, json) = (token(&["list"]).out, token(&["list", "--format", "json"]).out);
    let rows = [
        "name  roles        zones  band  known by",
        "web   app          log*   2     token",
        "shop  app auditor  *      0     certificate",
    ];
    assert_eq!(table.lines().map(str::trim_end).collect::<Vec<_>>(), rows);
    let expected = json!([
        { "name": "web", "roles": ["app"], "zones": ["log*"], "band": 2, "by": "token" },
        { "name": "shop", "roles": ["app", "auditor"], "zones": ["*"], "band": 0, "by": "certificate" },
    ]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected);
    let before = file();
    assert!(!before.contains(&secret) && before.contains("certificate = "));

    token(&["remove", "nobody"]).assert_refused("there is no token \"nobody\"");
    token(&["remove", "web", "--file", "nowhere.toml"]).assert_refused("nowhere.toml cannot be read");
    assert_eq!(file(), before);
    assert_eq!(token(&["remove", "web"]).out, "removed  web\n");
    let (_, rest) = before.rsplit_once("[[token]]").unwrap();
    assert_eq!(file(), format!("# ours\n\n[[token]]{rest}"));
    let mode = std::fs::metadata(program.path("tokens.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    token(&["remove", "shop"]);
    assert!(token(&["list"]).out.starts_with("no tokens yet"));
    std::fs::write(program.path("tokens.toml"), "nonsense").unwrap();
    for command in [&["list"][..], &["remove", "web"]] {
        token(command).assert_refused("tokens.toml: the file of tokens cannot be read");
    }
}
