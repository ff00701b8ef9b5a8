//! The end of a server, and its socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tallygate_server::{Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::client::{Serving, login};

/// Callers on connections that stay open: each request that was sent is answered, or its connection was closed before the
/// server had read anything of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_is_answered_and_in_the_ledger() {
    let serving = Serving::start("").await;
    let at = serving.at;
    let answered = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(at).await.unwrap();
                for n in 0.. {
                    let body = login(&format!("{caller}-{n}")).to_string();
                    let request = format!(
                        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(request.as_bytes()).await.is_err() {
                        return;
                    }
                    let mut bytes = vec![0; 4_096];
                    match stream.read(&mut bytes).await {
                        Ok(0) | Err(_) => return,
                        Ok(length) => {
                            let text = String::from_utf8_lossy(&bytes[..length]);
                            assert!(text.starts_with("HTTP/1.1 200") && text.ends_with('}'), "{text}");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    let enough = async {
        while answered.load(Ordering::Relaxed) < 200 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), enough).await.expect("they are answered");
    let (folder, served) = serving.stop();
    served.await.unwrap().unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(TcpStream::connect(at).await.is_err(), "nothing is accepted any more");
    let url = format!("sqlite:{}", folder.path().join("tallygate.db").display());
    let limiter = tallygate::Limiter::connect(&url).await.unwrap();
    let history = tallygate::ledger::History::default().limit(10_000);
    let rows = limiter.auditor().history(&history).await.unwrap().rows.len();
    assert_eq!(rows, answered.load(Ordering::Relaxed), "a row for each answer, and no other");
}

#[tokio::test]
async fn it_says_that_it_is_not_ready_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tallygate.sock");
    let mut config = Config::read("stopping.notice_s = 3600").unwrap();
    config.listen = format!("unix:{}", path.display());
    config.database.app = format!("sqlite:{}", folder.path().join("tallygate.db").display());
    // One that a killed server left is in nobody's way; one that is answered at is.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::bind(config.clone()).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async { stopped.await.unwrap_or_default() }));
    let taken = Server::bind(config).await.err().unwrap().to_string();
    assert!(taken.contains("another server listens there"), "{taken}");
    let ask = async |request: &str| {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    assert!(ask("GET /readyz").await.starts_with("HTTP/1.0 200"));
    // A user of the socket needs no token, and has every right.
    assert!(ask("GET /v1/zones").await.contains("{\"zones\":[]}"));
    stop.send(()).unwrap();
    for _ in 0..600 {
        if ask("GET /readyz").await.starts_with("HTTP/1.0 503") {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let told = ask("GET /readyz").await;
    assert!(told.contains("about to end"), "{told}");
    assert!(ask("GET /livez").await.starts_with("HTTP/1.0 200"), "it answers as long as it gives notice");
    served.abort();
    served.await.unwrap_err();
    assert!(!path.exists(), "the socket is gone");
}
