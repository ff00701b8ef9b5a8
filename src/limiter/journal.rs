//! Checks that passed while the database did not answer: a local file, and its way into the ledger.
//!
//! A line for each check, on the disk before the check is answered. When the database answers again, the file is set
//! aside, each of its lines becomes an `unchecked` row, once, by its transaction; then it is removed. Lines of it that
//! a crash leaves are taken up by the program that opens the journal next.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::shards::Shards;
use super::{Inner, Limiter, flat, until};
use crate::boxed::{BoxFuture, alone, boxed, spawn};
use crate::engine::{Action, What};
use crate::entry::Recorded;
use crate::error::{Error, ErrorKind, Result};
use crate::private;
use crate::shard::moved_to;

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
    /// Not written yet.
    waiting: Mutex<Vec<Waiting>>,
    /// Is there anything that the ledger does not know?
    filled: AtomicBool,
    /// One at a time brings it into the ledger.
    reconciling: tokio::sync::Mutex<()>,
}

/// Lines, and who waits until they are on the disk.
type Waiting = (Vec<u8>, oneshot::Sender<Result<(), String>>);

/// A check that passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    pub zone: String,
    pub key: String,
    pub txn: Uuid,
    pub cost: i64,
    /// By the clock of this host.
    pub at: DateTime<Utc>,
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
        let lock = private::append(&beside(&path, "lock")).map_err(|error| refused(error.to_string()))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refused("another process has it open; give each its own".to_owned()),
            TryLockError::Error(error) => refused(error.to_string()),
        })?;
        let file = append_to(&path).map_err(|error| refused(error.to_string()))?;
        sync_folder(&path).map_err(|error| refused(error.to_string()))?;
        let filled = AtomicBool::new(size(&path) > 0);
        let (file, waiting, reconciling) =
            (Mutex::new(Some(file)), Mutex::default(), tokio::sync::Mutex::default());
        let open = Open { path, most_bytes, _lock: lock, file, waiting, filled, reconciling };
        Ok(Self { inner: Arc::new(open) })
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

    /// On the disk when it returns; the reason, and nothing written, when there is no room. Checks that come while the disk
    /// is busy are written together.
    pub(super) async fn add(&self, passed: Vec<Passed>) -> Result<(), String> {
        let mut lines = Vec::new();
        for passed in &passed {
            lines.append(&mut line(passed).map_err(|error| error.to_string())?);
        }
        let (told, written) = oneshot::channel();
        self.inner.waiting().push((lines, told));
        let journal = self.clone();
        let cut_short = || "the writing was cut short".to_owned();
        spawn_blocking(move || journal.write()).await.map_err(|_| cut_short())?;
        written.await.unwrap_or_else(|_| Err(cut_short()))
    }

    /// Writes all that waits, if another call has not.
    fn write(&self) {
        let mut file = self.inner.file();
        let waiting = std::mem::take(&mut *self.inner.waiting());
        if waiting.is_empty() {
            return;
        }
        let (mut lines, mut fitting) = (Vec::new(), Vec::new());
        let gather = || {
            let file = match &mut *file {
                Some(file) => file,
                none => none.insert(append_to(&self.inner.path)?),
            };
            let before = file.metadata()?.len();
            for (mut line, told) in waiting {
                let bytes = before + lines.len() as u64 + line.len() as u64;
                if bytes > self.inner.most_bytes {
                    told.send(Err("it is full".to_owned())).ok();
                } else {
                    lines.append(&mut line);
                    fitting.push(told);
                }
            }
            self.inner.filled.store(true, Ordering::Release);
            let written = file.write_all(&lines).and_then(|()| file.sync_data());
            if written.is_err() {
                // Half a line is none; at the least the next one begins a line of its own.
                file.set_len(before).or_else(|_| file.write_all(b"\n"))?;
            }
            written
        };
        let written = gather().map_err(|error: io::Error| error.to_string());
        for told in fitting {
            told.send(written.clone()).ok();
        }
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

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(passed: &Passed) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(passed)?;
    line.push(b'\n');
    Ok(line)
}

/// A line that a crash cut short is ended, so that the next line is one of its own.
fn append_to(path: &Path) -> io::Result<File> {
    let mut file = private::append(path)?;
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
    let mut file = append_to(&beside(path, "refused"))?;
    file.write_all(&line(passed)?)?;
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
    /// The same limiter with a journal, for zones whose [`OnOutage`](crate::policy::OnOutage) is open: while the database does
    /// not answer, their checks pass with [`Reason::Unchecked`](crate::Reason::Unchecked), once they are on this host's disk. Of
    /// [several limits](Self::check_all) all pass, or none.
    ///
    /// A check that waits longer than 100 ms asks the database for a sign, once in a second for all of them. When there
    /// is none within a second, or the connection is refused, checks pass at once, until a look each second finds the database
    /// again. A zone is known to be open from the first answer about it on. When the journal is full, or a zone was never asked
    /// for, nothing passes.
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
    /// Transient: the database does not answer; Refused, Schema: the user lacks the role *app*, or the program is too old. All
    /// that is left stays in the journal. Invalid: the files of the journal
    /// cannot be read or written. A check that fails in any other way is no error: it goes to the file that ends in
    /// `.refused`.
    pub fn reconcile(&self) -> BoxFuture<'_, Result<usize>> {
        boxed(async move {
            let Some(journal) = self.journal.clone() else { return Ok(0) };
            let shards = self.shards.clone();
            let work = async move {
                let _turn = journal.inner.reconciling.lock().await;
                shards.reconcile(&journal).await
            };
            flat(spawn(work).await)
        })
    }

    /// The database answered: what passed before is brought there, without anybody waiting.
    pub(super) fn catch_up(&self) {
        if let Some(journal) = self.journal.clone().filter(|journal| !journal.is_empty()) {
            let shards = self.shards.clone();
            alone(async move {
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
                    // A right or a newer program may be given later.
                    Err(error) if error.is_transient() || is_lacking(&error) => return Err(error),
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

/// The operator can help it.
fn is_lacking(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::Schema) && moved_to(error).is_none()
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

    #[tokio::test]
    async fn what_is_added_is_read_again_also_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (first, second) = (passed("a\"b"), passed("c"));
        {
            let journal = Journal::open(&path, 1_000).unwrap();
            assert!(journal.is_empty());
            assert_eq!(journal.bytes(), 0);
            journal.add(vec![first.clone()]).await.unwrap();
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
        journal.add(vec![second.clone()]).await.unwrap();
        assert_eq!(journal.set_aside().unwrap(), Some(vec![second]));
        journal.remove_set_aside().unwrap();
        assert_eq!(journal.set_aside().unwrap(), None);
        assert!(journal.is_empty());
    }

    #[tokio::test]
    async fn what_a_crash_cut_short_costs_no_line_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for cut in [&b"{\"zone\":\"cu"[..], "{\"zone\":\"日".as_bytes().split_at(11).0] {
            fs::write(&path, cut).unwrap();
            let journal = Journal::open(&path, 1_000).unwrap();
            let next = passed("next");
            journal.add(vec![next.clone()]).await.unwrap();
            assert_eq!(journal.set_aside().unwrap(), Some(vec![next]));
            journal.remove_set_aside().unwrap();
        }
    }

    #[tokio::test]
    async fn a_full_journal_takes_no_more_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal"), 300).unwrap();
        let first = passed("a");
        journal.add(vec![first.clone()]).await.unwrap();
        assert_eq!(journal.add(vec![passed(&"b".repeat(200))]).await, Err("it is full".to_owned()));
        assert_eq!(journal.set_aside().unwrap(), Some(vec![first]));
    }
}
