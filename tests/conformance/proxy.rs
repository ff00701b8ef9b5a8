//! A network that can be watched and broken: it counts what is asked, and loses or holds what is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tallygate::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::db::{Connected, Db};

/// Stands before a server until it ends, and cuts or holds connections once it is told to.
pub struct Proxy {
    /// The server's URL with the proxy in its place.
    pub url: String,
    cuts: Arc<Cuts>,
    asked: Arc<AtomicUsize>,
    /// Dropped with the proxy, which ends it too.
    end: oneshot::Sender<()>,
    connections: JoinHandle<()>,
}

#[derive(Default)]
struct Cuts {
    /// One answer of so many is lost; none while this is 0.
    one_of: AtomicUsize,
    made: AtomicUsize,
    /// Which one of the next answers is held, from 1 on; 0 once it is held, and none while all pass.
    passing: watch::Sender<Option<usize>>,
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
        let (end, mut ended) = oneshot::channel();
        let connections = tokio::spawn({
            let (cuts, asked) = (Arc::clone(&cuts), Arc::clone(&asked));
            async move {
                let mut connections = JoinSet::new();
                while let Some(Ok((client, _))) = tokio::select! {
                    accepted = listener.accept() => Some(accepted),
                    _ = &mut ended => None,
                } {
                    connections.spawn(carry(client, server.clone(), Arc::clone(&cuts), Arc::clone(&asked)));
                }
                drop(listener);
                connections.shutdown().await;
            }
        });
        Self { url, cuts, asked, end, connections }
    }

    /// The address that it stands at, for another one after it.
    pub fn address(&self) -> String {
        let (_, rest) = self.url.rsplit_once('@').unwrap();
        rest.split('/').next().unwrap().to_owned()
    }

    /// Ends it. When that returns, nothing gets through any more.
    pub async fn end(self) {
        self.end.send(()).unwrap();
        self.connections.await.unwrap();
    }

    /// From now on so many more answers pass, and the next one is held, with all behind it.
    pub fn hold_after(&self, answers: usize) {
        self.cuts.passing.send_replace(Some(answers + 1));
    }

    /// Until an answer is held.
    pub async fn holds(&self) {
        self.cuts.passing.subscribe().wait_for(|passing| *passing == Some(0)).await.unwrap();
    }

    /// Held bytes pass, and all that come.
    pub fn let_pass(&self) {
        self.cuts.passing.send_replace(None);
    }

    /// Does the work end before more than so many answers have come? Else the next one is held, and all sessions of the test's own
    /// are ended.
    pub async fn ends_within(
        &self,
        answers: usize,
        work: impl Future<Output = Result<()>> + Send + 'static,
        db: &Db,
        killer: &mut Connected,
    ) -> bool {
        self.hold_after(answers);
        let mut work = tokio::spawn(work);
        let is_done = tokio::select! {
            done = &mut work => { done.unwrap().unwrap(); true }
            () = self.holds() => { work.abort(); false }
        };
        while db.kill_a_session(killer).await {}
        self.let_pass();
        is_done
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
            let mut passing = cuts.passing.subscribe();
            cuts.passing.send_if_modified(|passing| {
                let counts = passing.is_some_and(|passing| passing > 0);
                *passing = passing.map(|passing| passing.saturating_sub(1));
                counts
            });
            passing.wait_for(|passing| *passing != Some(0)).await.unwrap();
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
