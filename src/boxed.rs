//! Futures that are compiled once, and that end whatever happens in them.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::task::JoinHandle;

/// The future of one call.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes the future of a public method, so that this crate compiles it.
///
/// The future of an `async fn` is compiled in each crate that awaits it: here down to the driver, for minutes in every service and
/// face. A function that is neither `async` nor generic, and that returns this, is compiled here alone. It costs an allocation.
pub(crate) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// Spawns a task, which is compiled once for all futures of the same output.
#[must_use = "a task that died reads like one that found nothing: look at its end, or leave it `alone`"]
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(boxed(future))
}

/// Spawns a task that nobody has to wait for: where it dies, the log tells so.
pub(crate) fn alone(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn(async {
        if caught(future).await.is_none() {
            tracing::error!("a task broke off; what it said on stderr tells where, please report it");
        }
    })
}

/// The output of a future; None where it panicked, as a driver may at a value that it cannot read.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}
