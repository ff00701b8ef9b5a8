//! The server, asked by bytes on a socket.

mod attack;
mod client;
mod conformance;
mod doorman;
mod envoy;
mod ledger;
mod lines;
mod openapi;
mod rights;
mod seen;
mod stopping;
mod tls;
