//! Connections: taken one by one, bounded in number and in time, and let go in peace.

mod paced;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use self::paced::Paced;
use crate::Failure;
use crate::config::Limits;
use crate::tls::Secure;
use crate::token::Proof;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// Somebody on the network, or on this machine.
    Address(IpAddr),
    /// A user of this machine whom the socket admits, by number.
    User(u32),
}

pub(crate) enum Listener {
    Tcp(TcpListener, Option<Secure>),
    Socket(UnixListener, Place),
}

/// A socket in the file system, which goes away with its listener.
pub(crate) struct Place {
    path: PathBuf,
    /// The user who made it; besides root, nobody else is answered.
    user: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    /// Binds to an address, under TLS where there is any, or to a socket.
    pub async fn bind(at: &str, secure: Option<&Secure>) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(format!(
                "the server cannot listen at {at:?}: {error}; choose another with listen or --listen"
            ))
        };
        match at.strip_prefix("unix:") {
            Some(path) => Self::socket(Path::new(path)).await.map_err(failed),
            None => Ok(Self::Tcp(TcpListener::bind(at).await.map_err(failed)?, secure.cloned())),
        }
    }

    async fn socket(path: &Path) -> io::Result<Self> {
        // One that a killed server left is in the way of its next start; one that somebody answers at is not touched.
        if fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
            match UnixStream::connect(path).await {
                Ok(_) => {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
                }
                Err(_) => fs::remove_file(path)?,
            }
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let user = fs::metadata(path)?.uid();
        Ok(Self::Socket(listener, Place { path: path.to_owned(), user }))
    }

    /// Where it can be reached, as it was named; a port 0 is told as the one that it became.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener, secure) => {
                let scheme = if secure.is_some() { "https" } else { "http" };
                listener
                    .local_addr()
                    .map_or_else(|error| error.to_string(), |address| format!("{scheme}://{address}"))
            }
            Self::Socket(_, place) => format!("unix:{}", place.path.display()),
        }
    }

    /// True when only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().is_ok_and(|address| address.ip().is_loopback()),
            Self::Socket(..) => true,
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<Peer>)> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, address) = listener.accept().await?;
                // Answers are small, and somebody waits for each.
                stream.set_nodelay(true).ok();
                Ok((Box::new(stream), Some(Peer::Address(address.ip().to_canonical()))))
            }
            Self::Socket(listener, place) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().map(|credentials| credentials.uid());
                let peer = user.ok().filter(|user| *user == 0 || *user == place.user).map(Peer::User);
                Ok((Box::new(stream), peer))
            }
        }
    }
}

/// The protocol that a connection is spoken on.
#[derive(Clone, Copy)]
pub(crate) enum Speaks {
    /// HTTP/1, a request after the other.
    Http1,
    /// HTTP/2, as gRPC needs it.
    Http2,
}

/// The terms that every connection of a listener is given.
struct Terms {
    speaks: Speaks,
    secure: Option<Secure>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    /// For a handshake, and then for the first request.
    patience: Duration,
    /// For the other end to take a piece of an answer.
    write_patience: Duration,
    router: Router,
}

impl Terms {
    fn new(speaks: Speaks, listener: &Listener, limits: &Limits, router: Router) -> Self {
        let patience = Duration::from_secs(limits.head_s);
        let mut http1 = http1::Builder::new();
        http1.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(limits.head_bytes);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(patience)
            .keep_alive_timeout(patience)
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
        let secure = match listener {
            Listener::Tcp(_, secure) => secure.clone(),
            Listener::Socket(..) => None,
        };
        let write_patience = Duration::from_secs(limits.write_s);
        Self { speaks, secure, http1, http2, patience, write_patience, router }
    }

    /// Serves one connection to its end. A client that leaves, or is too slow, is told to nobody.
    async fn hold(&self, stream: Box<dyn Stream>, peer: Peer, under_way: Watcher) {
        let stream = Box::new(Paced::new(stream, self.write_patience));
        let Ok(greeted) = timeout(self.patience, self.greet(stream)).await else { return };
        let (stream, certificate) = match greeted {
            Ok((stream, certificate)) => (TokioIo::new(stream), certificate),
            Err(error) => return tracing::info!(%error, "a handshake failed"),
        };
        let (asked, router) = (Arc::new(Notify::new()), self.router.clone());
        let is_asked = Arc::clone(&asked);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            is_asked.notify_one();
            request.extensions_mut().insert(peer.clone());
            certificate.map(|certificate| request.extensions_mut().insert(certificate));
            router.clone().call(request.map(Body::new))
        });
        match self.speaks {
            Speaks::Http1 => drop(under_way.watch(self.http1.serve_connection(stream, service)).await),
            Speaks::Http2 => {
                let mut served = pin!(under_way.watch(self.http2.serve_connection(stream, service)));
                // A request is waited for, and after it hyper asks whether the other end is there.
                tokio::select! {
                    _ = &mut served => {}
                    first = timeout(self.patience, asked.notified()) => if first.is_ok() { served.await.ok(); },
                }
            }
        }
    }

    /// The stream that is spoken over, and the certificate that was shown and vouched for.
    async fn greet(&self, stream: Box<dyn Stream>) -> io::Result<(Box<dyn Stream>, Option<Proof>)> {
        let Some(secure) = &self.secure else { return Ok((stream, None)) };
        let protocol: &[u8] = match self.speaks {
            Speaks::Http1 => b"http/1.1",
            Speaks::Http2 => b"h2",
        };
        let stream = secure.handshake(stream, protocol).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.map(|certificate| Proof::certificate(certificate));
        Ok((Box::new(stream), certificate))
    }
}

/// Requests on one connection of HTTP/2 at once.
const STREAMS: u32 = 256;

/// The bits of an address of IPv6 that name a network, and not a machine in it.
const NETWORK: u128 = !0 << 64;

/// Serves until `stop`, and then what was accepted, for `drain` at most.
pub(crate) async fn serve(
    listener: Listener,
    speaks: Speaks,
    router: Router,
    limits: &Limits,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> Result<(), Failure> {
    let room = Arc::new(Semaphore::new(limits.connections));
    let crowd = Arc::new(Crowd::default());
    let under_way = GracefulShutdown::new();
    let terms = Arc::new(Terms::new(speaks, &listener, limits, router));
    let mut stop = pin!(stop);
    let mut held = JoinSet::new();
    loop {
        let next = async {
            let room = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
            listener.accept().await.map(|(stream, peer)| (room, stream, peer))
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            Some(ended) = held.join_next() => {
                look(ended);
                continue;
            }
            () = &mut stop => break,
        };
        let (room, stream, peer) = match accepted {
            Ok((room, stream, Some(peer))) => (room, stream, peer),
            Ok((_, _, None)) => continue,
            Err(error) => {
                // Too many open files, or somebody who left: neither is a reason to end, nor to spin.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(place) = Crowd::enter(&crowd, &peer, limits.connections_per_peer) else { continue };
        let (terms, watcher) = (Arc::clone(&terms), under_way.watcher());
        held.spawn(async move {
            terms.hold(stream, peer, watcher).await;
            drop((room, place));
        });
    }
    drop(listener);
    let drained = async {
        under_way.shutdown().await;
        while let Some(ended) = held.join_next().await {
            look(ended);
        }
    };
    timeout(drain, drained).await.map_err(|_| {
        Failure::new(format!("after {drain:?} not every request was answered; raise stopping.drain_s"))
    })
}

/// The end of a connection's task.
fn look(ended: Result<(), JoinError>) {
    if ended.is_err() {
        tracing::error!(
            "a connection broke off; what the program said on stderr tells where, please report it"
        );
    }
}

/// The number of connections that each peer has. A network of IPv6 is one peer: whoever has any address there has all of them.
#[derive(Default)]
struct Crowd(Mutex<HashMap<Peer, usize>>);

/// One connection's place among those of its peer.
struct Entered {
    crowd: Arc<Crowd>,
    peer: Peer,
}

impl Crowd {
    fn enter(crowd: &Arc<Self>, peer: &Peer, most: usize) -> Option<Entered> {
        let peer = match peer {
            Peer::Address(IpAddr::V6(address)) => {
                let network = Ipv6Addr::from_bits(address.to_bits() & NETWORK);
                Peer::Address(network.into())
            }
            peer => peer.clone(),
        };
        let mut peers = crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = peers.entry(peer.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Entered { crowd: Arc::clone(crowd), peer })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut peers = self.crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let crowd = Arc::new(Crowd::default());
        let enter = |address: &str| Crowd::enter(&crowd, &Peer::Address(address.parse().unwrap()), 1);
        let held = enter("2001:db8::1");
        assert!(held.is_some() && enter("2001:db8::ffff:0:1").is_none());
        for other in ["2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"] {
            assert!(enter(other).is_some(), "{other}");
        }
        drop(held);
        assert!(enter("2001:db8::2").is_some(), "the place was given back");
        assert_eq!(crowd.0.lock().unwrap().len(), 0);
    }
}
