//! Connections that send at once.
//!
//! sqlx 0.9.0 opens its sockets without TCP_NODELAY. A message that leaves in several pieces, as every long statement
//! does that is encrypted, then waits for the server's delayed acknowledgement between them: up to 40 ms. sqlx shows
//! nobody its socket, but Linux gives a process another handle of what it has open.

use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{SocketAddrAny, getpeername};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The number of open files that are looked at for each new connection; of those past them nothing is set.
const FILES: usize = 4_096;

/// Lets the sockets of this process that lead to this port send at once, whoever opened them. Where the system does not
/// allow it, all is as it was: slower.
pub fn send_to(port: u16) {
    let (Ok(this), Ok(open)) =
        (pidfd_open(getpid(), PidfdFlags::empty()), std::fs::read_dir("/proc/self/fd"))
    else {
        return;
    };
    for entry in open.flatten().take(FILES) {
        let is_socket =
            std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_socket);
        let socket = fd.and_then(|fd| pidfd_getfd(&this, fd, PidfdGetfdFlags::empty()).ok());
        if let Some(socket) = socket
            && getpeername(&socket).ok().flatten().is_some_and(|peer| port_of(peer) == Some(port))
        {
            set_tcp_nodelay(&socket, true).ok();
        }
    }
}

fn port_of(peer: SocketAddrAny) -> Option<u16> {
    std::net::SocketAddr::try_from(peer).ok().map(|peer| peer.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_leads_to_the_port_sends_at_once_and_nothing_else() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
        let [ours, other] = ports.map(|port| TcpStream::connect(("127.0.0.1", port)).unwrap());
        // In a container the system may not allow it.
        let this = pidfd_open(getpid(), PidfdFlags::empty());
        let is_allowed =
            this.and_then(|this| pidfd_getfd(&this, ours.as_raw_fd(), PidfdGetfdFlags::empty())).is_ok();
        assert!(!ours.nodelay().unwrap());
        send_to(ports[0]);
        assert_eq!((ours.nodelay().unwrap(), other.nodelay().unwrap()), (is_allowed, false));
    }
}
