//! TLS: who is believed, who is let go, and what is read again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tallygate_server::{Config, Right, Server, Tokens};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::client::{Answer, Serving, login, read, request};
use crate::envoy;

const WAIT: Duration = Duration::from_secs(30);

/// An authority, and a folder with the certificates that it signed.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The certificate and key that a client or a server shows, as PEM.
struct Shown {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: tempfile::tempdir().unwrap(), issuer };
        authority.write("ca.crt", &authority.issuer.pem());
        authority.serve_as(&authority.sign(2100));
        authority
    }

    fn sign(&self, until_year: i32) -> Shown {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until_year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Shown { certificate, key: key.serialize_pem() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn serve_as(&self, shown: &Shown) {
        self.write("server.crt", &shown.certificate);
        self.write("server.key", &shown.key);
    }

    /// The entry of a caller who shows this.
    fn admit(&self, name: &str, rights: &[Right], zones: &str, shown: &Shown) -> String {
        let certificate = self.write(&format!("{name}.crt"), &shown.certificate);
        Tokens::admit(name, rights, &[zones.to_owned()], &certificate).unwrap()
    }

    fn settings(&self) -> String {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (certificate, key, clients) = (path("server.crt"), path("server.key"), path("ca.crt"));
        format!("tls = {{ certificate = '{certificate}', key = '{key}', clients = '{clients}' }}\n")
    }

    /// A client that speaks this protocol and shows this.
    fn client(&self, protocol: &str, shown: Option<&Shown>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match shown {
            None => config.with_no_client_auth(),
            Some(Shown { certificate, key }) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    /// An answer; of status 0 where there is none.
    async fn ask(
        &self,
        serving: &Serving,
        shown: Option<&Shown>,
        token: Option<&str>,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let mut stream = connect(serving, &self.client("http/1.1", shown)).await.unwrap();
        let method = if body.is_some() { "POST" } else { "GET" };
        stream.write_all(request(method, path, token, body).as_bytes()).await.ok();
        read(&mut stream).await
    }

    async fn channel(&self, serving: &Serving, shown: Option<&Shown>) -> Channel {
        let tls = ClientTlsConfig::new().domain_name("localhost");
        let tls = tls.ca_certificate(Certificate::from_pem(self.issuer.pem()));
        let tls = match shown {
            None => tls,
            Some(Shown { certificate, key }) => tls.identity(Identity::from_pem(certificate, key)),
        };
        let endpoint = Endpoint::from_shared(serving.grpc.clone()).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await.unwrap()
    }
}

/// An error where the server does not agree at once.
async fn connect(serving: &Serving, client: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(serving.at).await.unwrap();
    client.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

#[tokio::test]
async fn a_certificate_is_a_caller_with_roles_and_zones() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (web, unnamed, expired) = (ours.sign(2100), ours.sign(2100), ours.sign(2001));
    let stranger = theirs.sign(2100);
    let both = [Right::App, Right::Auditor];
    let token = Tokens::make("ops", &both, &["*".to_owned()]).unwrap();
    let tokens = [
        ours.admit("web", &both, "login*", &web),
        ours.admit("expired", &both, "*", &expired),
        ours.admit("stranger", &both, "*", &stranger),
        token.entry,
    ];
    let serving = Serving::begin(&ours.settings(), &tokens).await;
    let check = async |shown: Option<&Shown>, token: Option<&str>, zone: &str| {
        let body = json!({ "zone": zone, "key": "a" });
        ours.ask(&serving, shown, token, "/v1/check", Some(body)).await
    };
    assert_eq!(check(Some(&web), None, "login").await.json()["allowed"], true);
    // A client that nobody vouches for, or no longer, is not spoken to.
    assert_eq!(check(Some(&stranger), None, "login").await.status, 0);
    assert_eq!(check(Some(&expired), None, "login").await.status, 0);
    assert_eq!(check(Some(&unnamed), None, "login").await.problem(), (401, "unknown_caller".to_owned()));
    assert_eq!(check(None, None, "login").await.problem(), (401, "unknown_caller".to_owned()));
    // A token comes before a certificate, and a wrong one is not mended by it.
    assert_eq!(check(None, Some(&token.secret), "payments").await.status, 200);
    assert_eq!(check(Some(&web), Some(&token.secret), "payments").await.status, 200);
    assert_eq!(check(Some(&web), Some("tg_0"), "login").await.problem().0, 401);
    // Another zone is neither spent nor seen.
    assert_eq!(check(Some(&web), None, "payments").await.problem(), (403, "forbidden".to_owned()));
    let seen = ours.ask(&serving, Some(&web), None, "/v1/history", None).await.body;
    assert!(seen.contains("login") && !seen.contains("payments"), "{seen}");
    let look = json!({ "zone": "payments", "key": "a" });
    assert_eq!(ours.ask(&serving, Some(&web), None, "/v1/peek", Some(look)).await.problem().0, 403);
    let zone = ours.ask(&serving, Some(&web), None, "/v1/zones/payments", None).await;
    assert_eq!(zone.problem().0, 403);
    // A client that comes again is looked at again.
    let client = ours.client("http/1.1", Some(&web));
    for _ in 0..2 {
        let mut stream = connect(&serving, &client).await.unwrap();
        stream.write_all(request("GET", "/livez", None, None).as_bytes()).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200);
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[tokio::test]
async fn envoy_is_answered_over_tls_alone() {
    let authority = Authority::new();
    let (envoy, web) = (authority.sign(2100), authority.sign(2100));
    let tokens = [
        authority.admit("envoy", &[Right::App], "*", &envoy),
        authority.admit("web", &[Right::App], "address", &web),
    ];
    let serving = Serving::begin(&authority.settings(), &tokens).await;
    assert!(serving.grpc.starts_with("https://"), "{}", serving.grpc);
    let ask = async |shown: Option<&Shown>| {
        envoy::ask(&authority.channel(&serving, shown).await, None).await.map_err(|status| status.code())
    };
    assert!(ask(Some(&envoy)).await.is_ok());
    assert_eq!(ask(Some(&web)).await, Err(tonic::Code::PermissionDenied));
    assert_eq!(ask(None).await, Err(tonic::Code::Unauthenticated));
    if let Ok(plain) = Endpoint::from_shared(serving.grpc.replace("https", "http")).unwrap().connect().await {
        let code = envoy::ask(&plain, None).await.unwrap_err().code();
        assert_ne!(code, tonic::Code::Unauthenticated, "it was not even asked who it is");
    }
    // Each address speaks its own protocol, and nothing else.
    assert!(connect(&serving, &authority.client("http/1.1", None)).await.is_ok());
    assert!(connect(&serving, &authority.client("h2", None)).await.is_err());
}

#[tokio::test]
async fn what_is_no_tls_or_half_of_it_is_let_go_and_delays_nobody() {
    let authority = Authority::new();
    let web = authority.sign(2100);
    let tokens = [authority.admit("web", &[Right::App], "*", &web)];
    for head_s in [3600, 1] {
        let serving =
            Serving::begin(&format!("{}limits.head_s = {head_s}", authority.settings()), &tokens).await;
        let mut halves = Vec::new();
        for at in [serving.at, serving.grpc_at()] {
            // Nothing, and the head of a record that does not come.
            for bytes in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream.write_all(bytes).await.unwrap();
                halves.push(stream);
            }
        }
        if head_s == 1 {
            for mut half in halves {
                timeout(WAIT, half.read_to_end(&mut Vec::new())).await.expect("it is let go").ok();
            }
            return;
        }
        // A connection without TLS gets no answer of HTTP, and ends at once.
        let mut plain = TcpStream::connect(serving.at).await.unwrap();
        plain.write_all(request("GET", "/livez", None, None).as_bytes()).await.unwrap();
        assert_eq!(timeout(WAIT, read(&mut plain)).await.expect("it is let go").status, 0);
        let asked = authority.ask(&serving, Some(&web), None, "/v1/check", Some(login("a")));
        assert_eq!(timeout(WAIT, asked).await.expect("others are answered").status, 200);
        let channel =
            timeout(WAIT, authority.channel(&serving, Some(&web))).await.expect("others are answered");
        envoy::ask(&channel, None).await.unwrap();
    }
}

#[tokio::test]
async fn files_are_read_again_and_a_bad_one_changes_nothing() {
    let authority = Authority::new();
    let web = authority.sign(2100);
    let serving =
        Serving::begin(&authority.settings(), &[authority.admit("web", &[Right::App], "*", &web)]).await;
    let shown = async || {
        let stream = connect(&serving, &authority.client("http/1.1", Some(&web))).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown().await;
    // One that stays open keeps what it began with.
    let mut open = connect(&serving, &authority.client("http/1.1", Some(&web))).await.unwrap();
    let again = request("POST", "/v1/check", None, Some(login("a"))).replace("Connection: close\r\n", "");
    let mut status = async || {
        open.write_all(again.as_bytes()).await.unwrap();
        let mut bytes = vec![0; 4_096];
        let length = open.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).split(' ').nth(1).map(str::to_owned)
    };
    assert_eq!(status().await.as_deref(), Some("200"));

    let (next, another) = (authority.sign(2100), authority.sign(2100));
    let line = next.key.lines().nth(1).unwrap();
    for (certificate, key, told) in [
        (next.certificate.as_str(), another.key.as_str(), "server.key cannot be shown"),
        (&next.certificate, "", "server.key has no private key"),
        (&next.certificate, &next.key[..80], "server.key has no private key"),
        (&next.certificate, &next.certificate, "server.key has no private key"),
        ("", &next.key, "server.crt has no certificate"),
        (&next.certificate[..80], &next.key, "server.crt has no certificate"),
    ] {
        authority.write("server.crt", certificate);
        authority.write("server.key", key);
        let refused = serving.reload.files().await.unwrap_err().to_string();
        assert!(refused.contains(told) && !refused.contains(&line[..20]), "{refused}");
        assert_eq!(shown().await, first);
    }
    authority.serve_as(&next);
    std::fs::write(serving.file("tokens.toml"), "").unwrap();
    authority.write("ca.crt", "");
    let refused = serving.reload.files().await.unwrap_err().to_string();
    assert!(refused.contains("ca.crt has no certificate"), "{refused}");
    assert_eq!((shown().await, status().await.as_deref()), (first, Some("200")));

    authority.write("ca.crt", &authority.issuer.pem());
    serving.reload.files().await.unwrap();
    assert_eq!(shown().await, CertificateDer::from_pem_slice(next.certificate.as_bytes()).unwrap().to_vec());
    // Nor does an open connection keep a right that was taken.
    assert_eq!(status().await.as_deref(), Some("401"));
}

#[tokio::test]
async fn tls_takes_tokens_and_files_that_are_good() {
    let authority = Authority::new();
    let mut config = Config::read(&authority.settings()).unwrap();
    (config.listen, config.database.app) = ("127.0.0.1:0".to_owned(), "sqlite::memory:".to_owned());
    let refused = Server::bind(config.clone()).await.err().unwrap().to_string();
    assert!(refused.contains("[tls]") && refused.contains("tallygate token add"), "{refused}");
    assert_eq!(config.check().unwrap_err().to_string(), refused);
    config.tokens = Some(authority.write("tokens.toml", ""));
    config.check().unwrap();
    authority.write("server.key", "");
    assert!(config.check().unwrap_err().to_string().contains("server.key"));
    for wrong in ["tls = {}", "tls = { certificate = 'a', key = 'b', client = 'c' }"] {
        assert!(Config::read(wrong).is_err(), "{wrong}");
    }
}
