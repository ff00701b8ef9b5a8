//! Waiting workers of a queue are woken when something is offered there: by this process on every database, by others
//! on PostgreSQL.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::Inner;
use crate::boxed::alone;
use crate::chain::{hex, sha256};
use crate::store::Store;

/// The number of offers that are told before the slowest of those who wait has heard of the first; then it
/// looks anyway.
const TOLD_MAX: usize = 256;

/// The time for which nothing is listened to after a failure.
const PAUSE: Duration = Duration::from_secs(60);

/// The news for those who wait.
pub(super) struct Waking {
    told: Sender<String>,
    /// Runs while anybody waits, and a while longer.
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// Somebody who waits at a queue.
pub(super) struct Wakeful {
    told: Receiver<String>,
    queue: String,
}

impl Default for Waking {
    fn default() -> Self {
        Self { told: broadcast::channel(TOLD_MAX).0, listening: Mutex::default() }
    }
}

impl Inner {
    /// Wakes whoever waits at a queue.
    pub(super) fn wake(&self, zone_id: i32, queue: &str) {
        // Nobody may be waiting.
        let _ = self.waking.told.send(place(zone_id, queue));
    }

    /// Hears from now on of what comes to wait in a queue.
    pub(super) fn listen(&self, zone_id: i32, queue: &str) -> Wakeful {
        let told = self.waking.told.subscribe();
        let mut listening = self.waking.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.as_ref().is_none_or(JoinHandle::is_finished) {
            *listening = Some(alone(listen(self.store.clone(), self.waking.told.clone())));
        }
        Wakeful { told, queue: place(zone_id, queue) }
    }
}

impl Waking {
    /// Hears nothing more of other processes.
    pub fn end(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        listening.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.end();
    }
}

impl Wakeful {
    /// Waits until something was offered, or until then; tells whether it was.
    pub async fn until(&mut self, there: Instant) -> bool {
        let heard = async {
            // An error: so much was told that some of it was missed.
            while self.told.recv().await.is_ok_and(|told| told != self.queue) {}
        };
        timeout_at(there, heard).await.is_ok()
    }
}

/// Hands on what other processes tell.
async fn listen(store: Store, told: Sender<String>) {
    if let Err(error) = store.listen(&told).await {
        tracing::debug!(%error, "nothing is heard of what other processes offer to queues; they are looked at instead");
        sleep(PAUSE).await;
    }
}

/// As `zone_engine_items_set` of PostgreSQL names it.
fn place(zone_id: i32, queue: &str) -> String {
    format!("{zone_id}:{}", hex(&sha256(&[queue.as_bytes()])[..8]))
}
