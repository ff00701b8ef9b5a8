//! The server, asked by bytes on a socket.

mod attack;
mod client;
mod conformance;
mod envoy;
mod ledger;
mod lines;
mod rights;
mod stopping;
