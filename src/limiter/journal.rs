//! Checks that passed while the database did not answer: a local file, and its way into the ledger.
//!
//! A line for each check, on the disk before the check is answered. When the database answers again, the file is set
//! aside, each of its lines becomes an `unchecked` row, once, by its transaction; then it is removed. Lines of it that
//! a crash leaves are taken up by the program that opens the journal next.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use uuid::Uuid;

use super::shards::Shards;
use super::{Inner, Limiter, flat, until};
use crate::check::Check;
use crate::decision::{Decision, Reason};
use crate::entry::Recorded;
use crate::error::{Error, Result};
use crate::store::{Action, Found, What};
use crate::zone::OnOutage;

/// The time that the database may take to answer that it is there.
const PROBE: Duration = Duration::from_secs(1);

/// A local file of what passed unchecked, see [`Limiter::with_journal`]. One process has it at a time.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Open>,
}

struct Open {
    path: PathBuf,
    most_bytes: u64,
    /// Held locked for as long as the journal is open.
    _lock: File,
    file: Mutex<Option<File>>,
    /// Is there anything that the ledger does not know?
    filled: AtomicBool,
    /// One at a time brings it into the ledger.
    reconciling: tokio::sync::Mutex<()>,
}

/// A check that passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Passed {
    zone: String,
    key: String,
    txn: Uuid,
    cost: i64,
    /// By the clock of this host.
    at: DateTime<Utc>,
}

impl Journal {
    /// Opens the file, or makes it, with room for `most_bytes`: about 200 for a check. Beside it, its name with `.lock`,
    /// `.sent` (up to as much again) and `.refused` at the end are its own too.
    ///
    /// # Errors
    /// Invalid: the file cannot be opened, or another process has it.
    pub fn open(path: impl Into<PathBuf>, most_bytes: u64) -> Result<Self> {
        let path = path.into();
        let refused =
            |why: String| Error::invalid(format!("the journal {} cannot be used: {why}", path.display()));
        let lock = File::create(beside(&path, "lock")).map_err(|error| refused(error.to_string()))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refused("another process has it open; give each its own".to_owned()),
            TryLockError::Error(error) => refused(error.to_string()),
        })?;
        let file = append_to(&path).map_err(|error| refused(error.to_string()))?;
        sync_folder(&path).map_err(|error| refused(error.to_string()))?;
        let filled = AtomicBool::new(size(&path) > 0);
        let (file, reconciling) = (Mutex::new(Some(file)), tokio::sync::Mutex::default());
        Ok(Self { inner: Arc::new(Open { path, most_bytes, _lock: lock, file, filled, reconciling }) })
    }

    /// True when the ledger knows of everything.
    pub fn is_empty(&self) -> bool {
        !self.inner.filled.load(Ordering::Acquire)
    }

    /// The bytes of lines that the ledger does not know of yet.
    pub(super) fn bytes(&self) -> u64 {
        size(&self.inner.path)
    }

    pub(super) fn most_bytes(&self) -> u64 {
        self.inner.most_bytes
    }

    /// On the disk when it returns; an error, and nothing written, when there is no room.
    fn add(&self, passed: &Passed) -> io::Result<()> {
        let mut line = serde_json::to_vec(passed)?;
        line.push(b'\n');
        let mut file = self.inner.file();
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(append_to(&self.inner.path)?),
        };
        let before = file.metadata()?.len();
        if before.saturating_add(line.len() as u64) > self.inner.most_bytes {
            return Err(io::Error::other("it is full"));
        }
        self.inner.filled.store(true, Ordering::Release);
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line is none; at the least the next one begins a line of its own.
            file.set_len(before).or_else(|_| file.write_all(b"\n"))?;
        }
        written
    }

    /// Sets the file aside, unless one is aside already, and reads that; None when there is nothing left.
    fn set_aside(&self) -> io::Result<Option<Vec<Passed>>> {
        let sent = beside(&self.inner.path, "sent");
        if !sent.exists() {
            let mut file = self.inner.file();
            if fs::metadata(&self.inner.path).map_or(0, |data| data.len()) == 0 {
                self.inner.filled.store(false, Ordering::Release);
                return Ok(None);
            }
            *file = None;
            fs::rename(&self.inner.path, &sent)?;
            sync_folder(&sent)?;
        }
        let mut passed = Vec::new();
        for line in fs::read(&sent)?.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(check) => passed.push(check),
                // A check whose line a crash cut short was not answered.
                Err(error) => tracing::warn!(%error, "a line of the journal cannot be read and is left out"),
            }
        }
        Ok(Some(passed))
    }

    fn remove_set_aside(&self) -> io::Result<()> {
        fs::remove_file(beside(&self.inner.path, "sent"))
    }
}

impl Open {
    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that a crash cut short is ended, so that the next line is one of its own.
fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    // Keys are in it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    if fs::read(path)?.last().is_some_and(|&last| last != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// A file that was made or renamed is there after a power cut too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Checks that the ledger refuses for good: a journal of another database, a zone that is not there.
fn keep_refused(path: &Path, passed: &Passed) -> io::Result<()> {
    let mut line = serde_json::to_vec(passed)?;
    line.push(b'\n');
    let mut file = append_to(&beside(path, "refused"))?;
    file.write_all(&line)?;
    file.sync_data()
}

/// Of the file, and of the one that was set aside.
fn size(path: &Path) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    size(path) + size(&beside(path, "sent"))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

impl Limiter {
    /// The same limiter with a journal, for zones whose [`OnOutage`] is open: while the database does not answer, their
    /// checks pass with [`Reason::Unchecked`], after the deadline, once they are on this host's disk. A zone is known to
    /// be open from the first answer about it on. When the journal is full, or a zone was never asked for, nothing
    /// passes.
    ///
    /// The ledger learns of what passed with the first check that the database answers again, or by
    /// [`reconcile`](Self::reconcile): a row of kind `unchecked` for each, once, which spends nothing.
    #[must_use]
    pub fn with_journal(self, journal: Journal) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Brings what the journal holds into the ledger. Returns how many checks that were; 0 without a journal.
    ///
    /// # Errors
    /// Transient: the database does not answer; what is left stays in the journal. Invalid: the files of the journal
    /// cannot be read or written. A check that fails in any other way is no error: it goes to the file that ends in
    /// `.refused`.
    pub async fn reconcile(&self) -> Result<usize> {
        let Some(journal) = self.journal.clone() else { return Ok(0) };
        let shards = self.shards.clone();
        let work = async move {
            let _turn = journal.inner.reconciling.lock().await;
            shards.reconcile(&journal).await
        };
        flat(tokio::spawn(work).await)
    }

    /// The answer to a check that the database did not give.
    ///
    /// A bucket that is held, a queue that is full or a short deadline are no outage, or whoever floods a zone would open
    /// it: so the database is asked for something that waits for no lock, and only if it is silent the check passes.
    pub(super) async fn outage(&self, passed: Check, txn: Uuid, error: Error) -> Result<Decision> {
        let inner = self.shards.of(&passed.key);
        let zone = inner.zones.known(&passed.zone).filter(|zone| zone.on_outage == OnOutage::Open);
        let (Some(zone), Some(journal)) = (zone, self.journal.clone()) else { return Err(error) };
        let peeks = passed.cost == 0 && !passed.record;
        let asks = timeout(PROBE, inner.store.find_zone(&passed.zone)).await;
        let answered = asks.is_ok_and(|answer| answer.map_or_else(|error| !error.is_transient(), |_| true));
        if peeks || answered {
            return Err(error);
        }
        let Found { version, .. } = zone;
        let passed = Passed { zone: passed.zone, key: passed.key, txn, cost: passed.cost, at: Utc::now() };
        let decision = Decision {
            zone: passed.zone.clone(),
            key: passed.key.clone(),
            txn_id: txn,
            blocked: false,
            reason: Reason::Unchecked,
            limit: 0,
            remaining: 0,
            retry_after_us: None,
            delay_us: None,
            ends_at: None,
            seq: None,
            zone_version: version,
            decided_at: passed.at,
            replayed: false,
            local: None,
        };
        let full = |why: &dyn std::fmt::Display| {
            Error::transient(format!("{error}; and the journal takes no more: {why}"))
        };
        match tokio::task::spawn_blocking(move || journal.add(&passed)).await {
            Ok(Ok(())) => Ok(decision),
            Ok(Err(why)) => Err(full(&why)),
            Err(why) => Err(full(&why)),
        }
    }

    /// The database answered: what passed before is brought there, without anybody waiting.
    pub(super) fn catch_up(&self) {
        if let Some(journal) = self.journal.clone().filter(|journal| !journal.is_empty()) {
            let shards = self.shards.clone();
            tokio::spawn(async move {
                // A call that is at it already does it all.
                if let Ok(_turn) = journal.inner.reconciling.try_lock()
                    && let Err(error) = shards.reconcile(&journal).await
                {
                    tracing::warn!(%error, "what passed unchecked is not in the ledger yet");
                }
            });
        }
    }
}

impl Shards {
    async fn reconcile(&self, journal: &Journal) -> Result<usize> {
        let unreadable = |error: io::Error| {
            Error::invalid(format!("the journal {} cannot be read: {error}", journal.inner.path.display()))
        };
        let mut recorded = 0;
        while let Some(passed) = journal.set_aside().map_err(unreadable)? {
            for passed in passed {
                let note = |inner: Arc<Inner>| {
                    let passed = passed.clone();
                    async move { inner.note(&passed).await }
                };
                let until = until(self.first().config.deadline);
                match self.ask(&passed.zone, &passed.key, until, note).await {
                    Ok(rows) => recorded += rows.iter().filter(|row| !row.replayed).count(),
                    Err(error) if error.is_transient() => return Err(error),
                    Err(error) => {
                        tracing::error!(%error, "a check that passed unchecked cannot be recorded; it is kept aside");
                        keep_refused(&journal.inner.path, &passed).map_err(unreadable)?;
                    }
                }
            }
            journal.remove_set_aside().map_err(unreadable)?;
        }
        Ok(recorded)
    }
}

impl Inner {
    async fn note(self: &Arc<Self>, passed: &Passed) -> Result<Vec<Recorded>> {
        let Passed { zone, key, txn, cost, at } = passed.clone();
        let zone_id = self.zone(&zone).await?.id;
        let note = Some(format!("passed at {}", at.to_rfc3339()));
        self.act(vec![Action { zone, zone_id, key, txn, what: What::Unchecked(cost), note, actor: None }])
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(key: &str) -> Passed {
        let (zone, txn) = ("login".to_owned(), Uuid::now_v7());
        Passed { zone, key: key.to_owned(), txn, cost: 1, at: Utc::now() }
    }

    #[test]
    fn what_is_added_is_read_again_also_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (first, second) = (passed("a\"b"), passed("c"));
        {
            let journal = Journal::open(&path, 1_000).unwrap();
            assert!(journal.is_empty());
            assert_eq!(journal.bytes(), 0);
            journal.add(&first).unwrap();
            assert!(!journal.is_empty());
            let bytes = journal.bytes();
            assert!(bytes > 100, "{bytes}");
            assert!(Journal::open(&path, 1_000).is_err(), "one process at a time");
            assert_eq!(journal.set_aside().unwrap(), Some(vec![first.clone()]));
            assert_eq!(journal.bytes(), bytes, "it is not in the ledger yet");
            // Cut short by a crash.
            fs::write(&path, b"{\"zone\":\"lo").unwrap();
        }
        let journal = Journal::open(&path, 1_000).unwrap();
        assert_eq!(journal.set_aside().unwrap(), Some(vec![first]), "what was set aside comes first");
        journal.remove_set_aside().unwrap();
        assert_eq!(journal.set_aside().unwrap(), Some(vec![]));
        journal.remove_set_aside().unwrap();
        journal.add(&second).unwrap();
        assert_eq!(journal.set_aside().unwrap(), Some(vec![second]));
        journal.remove_set_aside().unwrap();
        assert_eq!(journal.set_aside().unwrap(), None);
        assert!(journal.is_empty());
    }

    #[test]
    fn what_a_crash_cut_short_costs_no_line_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for cut in [&b"{\"zone\":\"cu"[..], "{\"zone\":\"日".as_bytes().split_at(11).0] {
            fs::write(&path, cut).unwrap();
            let journal = Journal::open(&path, 1_000).unwrap();
            let next = passed("next");
            journal.add(&next).unwrap();
            assert_eq!(journal.set_aside().unwrap(), Some(vec![next]));
            journal.remove_set_aside().unwrap();
        }
    }

    #[test]
    fn a_full_journal_takes_no_more_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal"), 300).unwrap();
        let first = passed("a");
        journal.add(&first).unwrap();
        assert_eq!(journal.add(&passed(&"b".repeat(200))).unwrap_err().to_string(), "it is full");
        assert_eq!(journal.set_aside().unwrap(), Some(vec![first]));
    }
}
