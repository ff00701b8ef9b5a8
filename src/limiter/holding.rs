//! Calls in a bucket that the engine alone can do: one after the other in this process, until it is done or the
//! deadline is over.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Inner, call, flat};
use crate::boxed::spawn;
use crate::error::Result;
use crate::store::{Bucket, Isolation, Terms};

impl Inner {
    /// The work is told whether it was tried before: then the attempt before may have been committed.
    pub(super) async fn holding<T, F>(
        &self,
        bucket: Bucket,
        until: Instant,
        work: impl Fn(Terms, bool) -> F,
    ) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let terms = Terms { isolation: Isolation::RowLock, until };
        let _entered = self.combiner.enter(BTreeSet::from([bucket]), until).await?;
        self.tries(until).run(|again| call(&self.store, 1, until, work(terms, again))).await
    }

    /// The same in a bucket of a zone that is named, for callers who may go away.
    pub(super) async fn holding_of<T, F>(
        self: &Arc<Self>,
        zone: &str,
        key: String,
        until: Instant,
        work: impl Fn(Arc<Self>, i32, Terms, bool) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let zone_id = self.told(self.within(self.zone(zone)).await)?.id;
        let this = Arc::clone(self);
        // A task of its own: the caller may go away, the protocol with the database goes on to its end.
        let done = spawn(async move {
            let work = |terms, again| work(Arc::clone(&this), zone_id, terms, again);
            match this.holding((zone_id, key), until, work).await {
                Err(error) if error.is_unknown_zone() => Err(this.look_again(vec![zone_id], error).await),
                done => done,
            }
        });
        flat(done.await)
    }
}
