//! The messages of Doorman's protocol and its service: made from the file in `proto/` by the test `proto`, which fails where
//! the two differ.
// As the generator writes it.
#![allow(clippy::all, clippy::pedantic, missing_docs)]

include!("proto/doorman.rs");
