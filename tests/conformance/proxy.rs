//! A network that can be watched and broken: it counts what is asked, and loses what is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Stands before a server until it is dropped, and cuts connections once it is told to.
pub struct Proxy {
    /// The server's URL with the proxy in its place.
    pub url: String,
    cuts: Arc<Cuts>,
    asked: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

#[derive(Default)]
struct Cuts {
    /// One answer of so many is lost; none while this is 0.
    one_of: AtomicUsize,
    made: AtomicUsize,
}

impl Proxy {
    pub async fn before(url: &str) -> Self {
        Self::at("127.0.0.1:0", url).await
    }

    /// At an address that another one may have stood at.
    pub async fn at(address: &str, url: &str) -> Self {
        let (account, rest) = url.rsplit_once('@').unwrap();
        let (server, path) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("{account}@{}/{path}", listener.local_addr().unwrap());
        let (server, cuts, asked) =
            (server.to_owned(), Arc::<Cuts>::default(), Arc::<AtomicUsize>::default());
        let mut connections = JoinSet::new();
        connections.spawn({
            let (cuts, asked) = (Arc::clone(&cuts), Arc::clone(&asked));
            async move {
                let mut connections = JoinSet::new();
                while let Ok((client, _)) = listener.accept().await {
                    connections.spawn(carry(client, server.clone(), Arc::clone(&cuts), Arc::clone(&asked)));
                }
            }
        });
        Self { url, cuts, asked, _connections: connections }
    }

    /// From now on one answer of so many is lost, and its connection with it.
    pub fn cut_one_of(&self, answers: usize) {
        self.cuts.one_of.store(answers, Ordering::Relaxed);
    }

    /// Round trips so far: how often a client spoke after the server had.
    pub fn round_trips(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub fn cuts(&self) -> usize {
        self.cuts.made.load(Ordering::Relaxed)
    }
}

async fn carry(client: TcpStream, server: String, cuts: Arc<Cuts>, asked: Arc<AtomicUsize>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answered = AtomicBool::new(true);
    let questions = async {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if answered.swap(false, Ordering::Relaxed) {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    let answers = async {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            let one_of = cuts.one_of.load(Ordering::Relaxed);
            if one_of > 0 && fastrand::usize(..one_of) == 0 {
                cuts.made.fetch_add(1, Ordering::Relaxed);
                return;
            }
            answered.store(true, Ordering::Relaxed);
            if to_client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        () = questions => {}
    }
}
