//! A real Envoy in front of a service: the configuration of `docs/envoy.md`, with ports of its own. `with-envoy` runs it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tallygate::ledger::History;
use tallygate::{Limiter, Policy};
use tallygate_envoy::{Mapping, RateLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// The document, whose code is what is tested.
const DOCUMENT: &str = include_str!("../../../docs/envoy.md");

/// The longest time that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

fn code(language: &str) -> &'static str {
    let (_, rest) = DOCUMENT.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// Asks until there is an answer.
async fn soon<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within {PATIENCE:?}");
}

/// What a client is answered.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn get(address: SocketAddr, path: &str, user: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let user = if user.is_empty() { String::new() } else { format!("x-user: {user}\r\n") };
    let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n{user}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let wrong = || std::io::Error::other(format!("no answer of HTTP: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// A service that says welcome, whatever it is asked.
async fn shop() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut asked, mut buffer) = (Vec::new(), [0; 1024]);
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    asked.extend_from_slice(&buffer[..read]);
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nwelcome").await);
                    }
                }
            });
        }
    });
    address
}

/// The rate limit service with the mapping of the document, and what ends it.
struct Limits {
    limiter: Limiter,
    address: SocketAddr,
    end: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn limits() -> Limits {
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap();
    for (zone, rate) in [("login", 5), ("login-user", 3)] {
        let policy = Policy::sliding_log(rate, Duration::from_secs(3600)).unwrap();
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let limits = RateLimits::new(limiter.clone(), Mapping::read(code("toml")).unwrap());
    limits.ready().await.unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (end, told) = oneshot::channel::<()>();
    let server = Server::builder().add_service(limits.into_service());
    let ended = tokio::spawn(async move {
        server.serve_with_incoming_shutdown(incoming, async move { drop(told.await) }).await.unwrap();
    });
    Limits { limiter, address, end, ended }
}

/// An Envoy, which ends with the test.
struct Envoy {
    address: SocketAddr,
    folder: tempfile::TempDir,
    _child: Child,
}

impl Envoy {
    /// With the configuration of the document, and this instead of that.
    async fn begin(shop: SocketAddr, limits: SocketAddr, change: (&str, &str)) -> Self {
        let binary =
            std::env::var_os("TALLYGATE_ENVOY").expect("TALLYGATE_ENVOY: run tests/with-envoy instead");
        let folder = tempfile::tempdir().unwrap();
        let port = |port: u16| format!("port_value: {port}");
        let config = code("yaml")
            .replace(&port(9901), &port(0))
            .replace(&port(10000), &port(0))
            .replace(&port(8080), &port(shop.port()))
            .replace(&port(8081), &port(limits.port()))
            .replace(change.0, change.1);
        std::fs::write(folder.path().join("envoy.yaml"), config).unwrap();
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let mut child = Command::new(binary)
            .current_dir(folder.path())
            .args(["-c", "envoy.yaml", "--admin-address-path", "admin", "--concurrency", "1"])
            .args(["--use-dynamic-base-id", "--file-flush-interval-msec", "20"])
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let address = soon("Envoy listens", async || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("Envoy ended with {status}: {}", read(folder.path(), "stderr"));
            }
            let admin = read(folder.path(), "admin").parse().ok()?;
            if get(admin, "/ready", "").await.ok()?.status != 200 {
                return None;
            }
            let listeners = get(admin, "/listeners", "").await.ok()?.body;
            let (_, rest) = listeners.split_once("shop::")?;
            rest.lines().next()?.trim().parse().ok()
        });
        let address = address.await;
        Self { address, folder, _child: child }
    }

    async fn get(&self, path: &str, user: &str) -> Answer {
        get(self.address, path, user).await.unwrap()
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn envoy_lets_pass_what_fits_and_answers_429_to_what_does_not() {
    let limits = limits().await;
    let envoy = Envoy::begin(shop().await, limits.address, ("", "")).await;
    for remaining in ["2", "1", "0"] {
        let answer = envoy.get("/login", "alice").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"), "{answer:?}");
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining), "{answer:?}");
        // The limit that is nearest to its end, and the other one: an hour is a unit.
        let told = answer.field("x-ratelimit-limit").unwrap();
        assert!(told.starts_with("3, ") && told.contains("3;w=3600;name=\"login-user\""), "{told}");
        assert!(told.contains("5;w=3600;name=\"login\""), "{told}");
    }
    let answer = envoy.get("/login", "alice").await;
    assert_eq!((answer.status, answer.field("x-envoy-ratelimited")), (429, Some("true")), "{answer:?}");
    let wait: u64 = answer.field("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{answer:?}");
    // What was held back by alice's limit is there for bob, and no more than that.
    let statuses = [envoy.get("/login", "bob").await.status, envoy.get("/login", "bob").await.status];
    assert_eq!(statuses, [200, 200]);
    let answer = envoy.get("/login", "carol").await;
    assert_eq!((answer.status, answer.field("x-envoy-ratelimited")), (429, Some("true")), "{answer:?}");
    assert_eq!(limits.limiter.peek("login", "remote_address=127.0.0.1").await.unwrap().remaining, 0);
    assert_eq!(limits.limiter.peek("login-user", "user=carol").await.unwrap().remaining, 3);
    // Other routes are asked about nobody.
    assert_eq!(envoy.get("/", "alice").await.status, 200);
    // Envoy's log says which limit it was, and under which transaction it is found.
    let log = soon("the log", async || {
        let log = read(envoy.folder.path(), "stdout");
        (log.lines().count() >= 8).then_some(log)
    });
    let log = log.await;
    let refused: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("429 ")?.split_once(' ')).collect();
    for ((_, told), zone) in refused.iter().zip(["login-user", "login"]) {
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        assert_eq!((&told["zone"], &told["reason"]), (&zone.into(), &"over_limit".into()), "{log}");
    }
    let (request_id, told) = refused[0];
    let told: serde_json::Value = serde_json::from_str(told).unwrap();
    assert_eq!((refused.len(), &told["transaction"]), (2, &request_id.into()), "{log}");
    let history = History { txn: Some(request_id.parse().unwrap()), ..History::default() };
    assert_eq!(limits.limiter.auditor().history(&history).await.unwrap().rows.len(), 2);
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn without_the_service_requests_pass_unless_envoy_is_told_otherwise() {
    let (limits, shop) = (limits().await, shop().await);
    let open = Envoy::begin(shop, limits.address, ("", "")).await;
    let closed =
        Envoy::begin(shop, limits.address, ("failure_mode_deny: false", "failure_mode_deny: true")).await;
    for envoy in [&open, &closed] {
        assert!(envoy.get("/login", "alice").await.field("x-ratelimit-remaining").is_some());
    }
    limits.end.send(()).unwrap();
    limits.ended.await.unwrap();
    for (envoy, status) in [(&open, 200), (&closed, 500)] {
        // More often than the limit is.
        for _ in 0..7 {
            let answer = envoy.get("/login", "alice").await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.field("x-ratelimit-remaining"), None, "{answer:?}");
        }
        assert_eq!(envoy.get("/", "alice").await.status, 200);
    }
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn a_zone_that_is_missing_is_an_error_to_envoy_and_no_pass() {
    let change = (
        "failure_mode_deny: false # true: 500 where nothing was decided\n",
        "failure_mode_deny: true\n                      status_on_error: { code: ServiceUnavailable }\n",
    );
    let missing = Limiter::connect("sqlite::memory:").await.unwrap();
    let service = RateLimits::new(missing, Mapping::read(code("toml")).unwrap());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_service(service.into_service()).serve_with_incoming(incoming));
    let envoy = Envoy::begin(shop().await, address, change).await;
    assert_eq!(envoy.get("/login", "alice").await.status, 503);
    assert_eq!(envoy.get("/", "alice").await.status, 200);
}
