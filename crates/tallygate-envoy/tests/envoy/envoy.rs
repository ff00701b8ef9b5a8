//! An Envoy as `docs/envoy.md` configures it, a service behind it, and a client before it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, Command};

/// The document, whose code is what is tested.
const DOCUMENT: &str = include_str!("../../../../docs/envoy.md");

/// The longest time that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn code(language: &str) -> &'static str {
    let (_, rest) = DOCUMENT.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// Asks until there is an answer.
pub async fn soon<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within {PATIENCE:?}");
}

/// The answer to a client.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn get(address: SocketAddr, path: &str, user: &str) -> std::io::Result<Answer> {
    ask(TcpStream::connect(address).await?, path, user).await
}

async fn ask(mut stream: TcpStream, path: &str, user: &str) -> std::io::Result<Answer> {
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
pub async fn shop() -> SocketAddr {
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

/// The change that makes an Envoy of the document fail closed.
pub const CLOSED: (&str, &str) = ("failure_mode_deny: false", "failure_mode_deny: true");

/// An Envoy, which ends with the test.
pub struct Envoy {
    address: SocketAddr,
    admin: SocketAddr,
    folder: tempfile::TempDir,
    _child: Child,
}

impl Envoy {
    /// With the configuration of the document, and these words instead of those.
    pub async fn begin(shop: SocketAddr, limits: SocketAddr, changes: &[(&str, &str)]) -> Self {
        let binary =
            std::env::var_os("TALLYGATE_ENVOY").expect("TALLYGATE_ENVOY: run tests/with-envoy instead");
        let folder = tempfile::tempdir().unwrap();
        let port = |port: u16| format!("port_value: {port}");
        let mut config = code("yaml")
            .replace(&port(9901), &port(0))
            .replace(&port(10000), &port(0))
            .replace(&port(8080), &port(shop.port()))
            .replace(&port(8081), &port(limits.port()));
        for (words, others) in changes {
            assert!(config.contains(words), "the document does not say {words:?}");
            config = config.replace(words, others);
        }
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
        let (address, admin) = soon("Envoy listens", async || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("Envoy ended with {status}: {}", read(folder.path(), "stderr"));
            }
            let admin = read(folder.path(), "admin").parse().ok()?;
            if get(admin, "/ready", "").await.ok()?.status != 200 {
                return None;
            }
            let listeners = get(admin, "/listeners", "").await.ok()?.body;
            let (_, rest) = listeners.split_once("shop::")?;
            Some((rest.lines().next()?.trim().parse().ok()?, admin))
        })
        .await;
        Self { address, admin, folder, _child: child }
    }

    pub async fn get(&self, path: &str, user: &str) -> Answer {
        get(self.address, path, user).await.unwrap()
    }

    /// From an address of the client's own.
    pub async fn get_from(&self, client: Ipv4Addr, path: &str, user: &str) -> Answer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((client, 0).into()).unwrap();
        ask(socket.connect(self.address).await.unwrap(), path, user).await.unwrap()
    }

    /// Its access log once it has so many lines: the status, the id of the request, and what the service told.
    pub async fn log(&self, lines: usize) -> Vec<(u16, String, Option<serde_json::Value>)> {
        let log = soon("the log", async || {
            let log = read(self.folder.path(), "stdout");
            (log.lines().count() >= lines).then_some(log)
        });
        let line = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
            let (status, request_id) = (word().parse().unwrap(), word().to_owned());
            (status, request_id, serde_json::from_str(word()).ok())
        };
        log.await.lines().map(line).collect()
    }

    /// The count under a name; 0 where it counted nothing.
    pub async fn counted(&self, name: &str) -> u64 {
        let stats = get(self.admin, &format!("/stats?filter={name}"), "").await.unwrap().body;
        let count = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
        stats.lines().find_map(count).unwrap_or_default()
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}
