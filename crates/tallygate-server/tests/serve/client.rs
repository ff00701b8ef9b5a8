//! A server of its own for each test, and a client that sends what it is told.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tallygate_server::{Config, Envoy, Reload, Right, Server, Tokens};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::openapi::Document;

pub struct Serving {
    pub at: SocketAddr,
    /// The address where Envoy asks.
    pub grpc: String,
    /// Where clients of Doorman ask, if they may.
    pub doorman: Option<String>,
    /// Where metrics are, if they have an address of their own.
    pub admin: Option<String>,
    pub folder: TempDir,
    pub reload: Reload,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tallygate_server::Failure>>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The status, and the code of a problem.
    pub fn problem(&self) -> (u16, String) {
        assert!(self.head.contains("application/problem+json"), "{}", self.head);
        let document = self.json();
        assert_eq!(document["status"], self.status);
        assert!(!document["detail"].as_str().unwrap().is_empty());
        (self.status, document["code"].as_str().unwrap().to_owned())
    }
}

impl Serving {
    /// Without tokens: this machine may check and read.
    pub async fn start(settings: &str) -> Self {
        Self::begin(settings, &[]).await
    }

    /// With tokens, whose secrets come in the same order.
    pub async fn start_with(tokens: &[(&str, &[Right], &str)]) -> (Self, Vec<String>) {
        let made: Vec<_> = tokens
            .iter()
            .map(|(name, rights, zone)| Tokens::make(name, rights, &[(*zone).to_owned()]).unwrap())
            .collect();
        let file: Vec<_> = made.iter().map(|made| made.entry.clone()).collect();
        (Self::begin("", &file).await, made.into_iter().map(|made| made.secret).collect())
    }

    /// With these settings and entries of the file of tokens.
    pub async fn begin(settings: &str, tokens: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::read(settings).unwrap();
        config.listen = "127.0.0.1:0".to_owned();
        config.database.app = format!("sqlite:{}", folder.path().join("tallygate.db").display());
        config.stopping.notice_s = 0;
        if !tokens.is_empty() {
            let file = folder.path().join("tokens.toml");
            std::fs::write(&file, tokens.join("\n")).unwrap();
            config.tokens = Some(file);
        }
        let mapping = folder.path().join("envoy.toml");
        std::fs::write(&mapping, MAPPING).unwrap();
        config.envoy = Some(Envoy { listen: "127.0.0.1:0".to_owned(), mapping });
        let zones = folder.path().join("zones.toml");
        std::fs::write(&zones, ZONES).unwrap();
        config.zones = Some(zones);
        let server = Server::bind(config).await.unwrap();
        let at = address_of(&server.address());
        let (reload, grpc) = (server.reload(), server.envoy_address().unwrap());
        let (admin, doorman) = (server.admin_address(), server.doorman_address());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async { stopped.await.unwrap_or_default() }));
        Self { at, grpc, doorman, admin, folder, reload, stop, served }
    }

    pub fn grpc_at(&self) -> SocketAddr {
        address_of(&self.grpc)
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.folder.path(), name)
    }

    /// Tells it to end.
    pub fn stop(self) -> (TempDir, JoinHandle<Result<(), tallygate_server::Failure>>) {
        self.stop.send(()).unwrap();
        (self.folder, self.served)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, None, Some(body)).await
    }

    pub async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> Answer {
        self.send(request(method, path, token, body)).await
    }

    /// With a header more.
    pub async fn check_with(&self, header: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.send(&format!(
            "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{header}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await
    }

    /// Every answer is held to the document.
    pub async fn send(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        // It may answer and close before it has read everything.
        stream.write_all(bytes.as_ref()).await.ok();
        let answer = read(&mut stream).await;
        Document::get().holds(bytes.as_ref(), &answer);
        answer
    }
}

pub const ZONES: &str = "
zone.login = { rate = 3, per = '60s' }
zone.address = { rate = 5, per = '60s' }
zone.payments = { rate = 1000, per = '24h' }
zone.seen = { rate = 1, per = '24h', blocked-rows = 'coalesced' }
zone.busy = { rate = 100000, per = '60s', local = '1s' }
zone.slots = { algorithm = 'concurrency', rate = 2, slot-ttl = '60s' }
";

const MAPPING: &str = "
[[limit]]
domain = 'shop'
entries = ['path=/login', 'remote_address']
zone = 'address'
";

/// Of `http://127.0.0.1:41234`.
pub fn address_of(url: &str) -> SocketAddr {
    url.split_once("://").unwrap().1.parse().unwrap()
}

/// A request after which the connection ends.
pub fn request(method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> String {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Everything until the other end closes.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.ok();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// A check of a user's login.
pub fn login(key: &str) -> Value {
    json!({ "zone": "login", "key": key })
}
