//! The work that is due when a request has ended.

use tallygate::policy::UNITS_MAX;
use tallygate::uuid::Uuid;
use tallygate::{Charged, Limiter};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The ends of what a request took.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// A slot is free again.
    Release,
    /// A charge is given back.
    Refund,
    /// A reservation is.
    Cancel,
    /// A reservation becomes a charge of so much.
    Settle(i64),
    /// A reservation becomes a charge of the bytes that were sent.
    SettleBytes,
}

impl End {
    /// Only when the body of the answer has ended.
    pub fn waits_for_body(self) -> bool {
        matches!(self, Self::Release | Self::SettleBytes)
    }
}

/// The bucket of a zone and a key.
pub(crate) type Bucket = (String, String);

/// The work that is done as soon as this is dropped, by a task of its own.
pub(crate) struct Due {
    pub limiter: Limiter,
    pub txn: Uuid,
    pub ends: Vec<(Bucket, End)>,
    /// Bytes of the answer's body so far.
    pub sent: u64,
}

impl Due {
    /// Does these at once, even if nobody waits for it any more.
    pub async fn now(&self, ends: Vec<(Bucket, End)>) {
        if !ends.is_empty() {
            alone(&Handle::current(), work(self.limiter.clone(), self.txn, ends, 0)).await.ok();
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        let ends = std::mem::take(&mut self.ends);
        // Without a runtime there is nobody to do it: slots and reservations end by themselves.
        if let (false, Ok(runtime)) = (ends.is_empty(), Handle::try_current()) {
            let sent = i64::try_from(self.sent).unwrap_or(i64::MAX);
            alone(&runtime, work(self.limiter.clone(), self.txn, ends, sent));
        }
    }
}

/// Does it in a task that nobody has to wait for: where it dies, the log tells so.
fn alone(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let done = runtime.spawn(work);
    runtime.spawn(async {
        if done.await.is_err() {
            tracing::error!("what a request took did not end: its task broke off");
        }
    })
}

async fn work(limiter: Limiter, txn: Uuid, ends: Vec<(Bucket, End)>, sent: i64) {
    for ((zone, key), end) in ends {
        let charged = Charged::by(txn).in_bucket(&zone, key);
        let done = match end {
            End::Release => limiter.release(charged).await,
            End::Refund => limiter.refund(charged).await,
            End::Cancel => limiter.cancel(charged).await,
            End::Settle(cost) => limiter.settle(charged, cost.clamp(0, UNITS_MAX)).await,
            End::SettleBytes => limiter.settle(charged, sent.min(UNITS_MAX)).await,
        };
        match done {
            Ok(_) => {}
            // It has ended otherwise: by itself, or by the service.
            Err(error) if error.is_conflict() => {
                tracing::debug!(zone, "what a request took had ended before")
            }
            Err(error) => {
                tracing::warn!(zone, code = error.code(), %error, "what a request took did not end")
            }
        }
    }
}
