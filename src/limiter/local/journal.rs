//! A line for each check that was decided locally, for who wants the requests recorded too.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::private;

/// A file to which each local decision is appended before it is answered, see
/// [`Limiter::with_local_journal`](crate::Limiter::with_local_journal). It is not a part of the ledger: nothing proves that it is
/// unaltered. Processes may share it.
///
/// A line is a JSON object: `zone`, `key`, `take` (the transaction of the row in the ledger that the units are of), `txn` and
/// `cost` of the check, and `at`.
#[derive(Clone)]
pub struct LocalJournal {
    path: Arc<Path>,
    file: Arc<File>,
}

/// A check that was decided locally.
#[derive(Serialize)]
struct Line<'l> {
    zone: &'l str,
    key: &'l str,
    take: Uuid,
    txn: Uuid,
    cost: i64,
    at: DateTime<Utc>,
}

impl LocalJournal {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Invalid: it cannot be opened for writing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = private::append(&path).map_err(|error| {
            Error::invalid(format!("the local journal {} cannot be opened: {error}", path.display()))
        })?;
        Ok(Self { path: path.into(), file: Arc::new(file) })
    }

    /// One call, so that lines of several processes do not mix. It is with the operating system then, not yet on the disk.
    pub(in crate::limiter) fn write(&self, decision: &Decision, take: Uuid, cost: i64) -> Result<()> {
        let Decision { zone, key, txn_id, decided_at, .. } = decision;
        let line = Line { zone, key, take, txn: *txn_id, cost, at: *decided_at };
        let written = serde_json::to_vec(&line).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            (&*self.file).write_all(&line)
        });
        written.map_err(|error| {
            Error::database(format!(
                "the local journal {} cannot be written: {error}; the check counts, and is not answered",
                self.path.display()
            ))
        })
    }
}
