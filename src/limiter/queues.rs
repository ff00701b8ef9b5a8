//! The face for queues: what is offered, taken and worked off.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::shards::Shards;
use super::waking::Wakeful;
use super::{Inner, until};
use crate::boxed::{BoxFuture, boxed};
use crate::check::{validate_bytes, validate_key};
use crate::decide::Progress;
use crate::error::{Error, Result};
use crate::item::{
    Item, Noted, Offer, Offered, Receipt, Said, Sayer, Size, State, Take, Taken, validate_txn,
};
use crate::store::{Isolation, Terms};
use crate::zone::{micros, validate_name, validate_time};

/// Between two looks at a queue in which nothing can be taken, at first and at most.
const GLANCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The most dead items that are told at once.
const DEAD_MAX: u32 = 1_000;

/// The calls of clients that offer items to queues, and of workers that take them. Made by
/// [`Limiter::queues`](crate::Limiter::queues). The connections need the role *app*.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::queue::{Offer, State, Take};
/// use tallygate::{Limiter, Policy};
/// # let limiter = Limiter::connect("sqlite::memory:").await?;
/// // Ten a second are taken, and at most 1,000 wait.
/// let mails = Policy::queue(10, Duration::from_secs(1), 1_000)?;
/// limiter.operator().set_zone("mail", &mails, None, "docs").await?;
/// let queues = limiter.queues();
/// let offered = queues.offer(Offer::new("mail", "out").payload(&serde_json::json!({ "to": 42 }))).await?;
/// assert!(!offered.blocked);
///
/// let taken = queues.take(Take::new("mail", "out", Duration::from_secs(30))).await?;
/// let work = &taken.items[0];
/// assert_eq!(work.payload, Some(serde_json::json!({ "to": 42 })));
/// queues.done("mail", "out", work.receipt).await?;
/// let item = queues.item("mail", "out", offered.txn_id).await?.unwrap();
/// assert_eq!(item.state, State::Done);
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Queues {
    pub(super) shards: Shards,
    pub(super) owner: Option<String>,
}

impl Queues {
    /// The same for one of several owners of workers, as a service that knows its callers: of an item that was taken,
    /// [`extend`](Self::extend), [`done`](Self::done) and [`release`](Self::release) take the word of its worker alone, which is called
    /// `owner` or `owner/…` in [`Take::worker`](crate::queue::Take::worker). Without it a receipt is enough, and one can be guessed.
    #[must_use]
    pub fn of(&self, owner: impl Into<String>) -> Self {
        Self { shards: self.shards.clone(), owner: Some(owner.into()) }
    }

    /// Offers an item to a queue. It waits if the backlog has room for it, or if less important items that wait can make room:
    /// the newest of the least important first, and none of them if all together do not suffice. Those are evicted, each with a
    /// row of its own; who offered one learns of it by [`item`](Self::item). An offer that there is no room for is no error:
    /// [`Offered::blocked`](crate::queue::Offered::blocked) says so, and after what wait there may be room.
    ///
    /// Holds the queue's row. Four round trips and two for the transaction, however much waits; more where items are evicted, or
    /// none can be: these are looked at until they come to what is lacking.
    ///
    /// # Errors
    /// Invalid: see [`Offer::validate`], or the zone has no queues. Conflict: its transaction offered something else before.
    /// Refused: the user has not the role *app*. And those of [`Limiter`](crate::Limiter).
    pub fn offer(&self, offer: Offer) -> BoxFuture<'_, Result<Offered>> {
        boxed(async move {
            offer.validate()?;
            let txn = offer.txn.unwrap_or_else(Uuid::now_v7);
            let (zone, queue) = (offer.zone.clone(), offer.queue.clone());
            self.holding(zone, queue, move |inner, zone_id, terms, again| {
                // The attempt before may have been committed.
                let offer = Offer { txn: if again { Some(txn) } else { offer.txn }, ..offer.clone() };
                async move {
                    let offered = inner.store.offer(zone_id, &offer, txn, terms).await?;
                    if !offered.blocked {
                        inner.wake(zone_id, &offer.queue);
                    }
                    Ok(offered)
                }
            })
            .await
        })
    }

    /// Takes what is next: the most important first, of these what was offered first, as much as the zone's pace lets
    /// and no more than was asked for. An item that was taken waits again at its old place when its time is over,
    /// unless it is done by then; after the zone's [`max_takes`](crate::policy::Queueing::max_takes) it is dead
    /// instead.
    ///
    /// Nothing makes it known whether a take was answered: what one took that nobody heard of waits again after its time.
    ///
    /// Holds the queue's row. Five round trips, six with payloads, and two for the transaction.
    ///
    /// # Errors
    /// Invalid: see [`Take::validate`], or the zone has no queues. And those of [`offer`](Self::offer).
    pub fn take(&self, take: Take) -> BoxFuture<'_, Result<Taken>> {
        boxed(async move {
            take.validate()?;
            let (zone, queue) = (take.zone.clone(), take.queue.clone());
            self.holding(zone, queue, move |inner, zone_id, terms, _| {
                let take = take.clone();
                async move { inner.store.take_next(zone_id, &take, terms).await }
            })
            .await
        })
    }

    /// The same, but where nothing can be taken it waits until something can, or `wait` is over. It looks again when the pace lets
    /// the next one be taken; when something is offered by this process, or by any other where the database tells it, which is
    /// PostgreSQL by `NOTIFY`; and besides ever more rarely, up to once a second.
    ///
    /// On PostgreSQL one connection more is open while any task of the process waits, and half a minute longer. A pooler that
    /// shares connections among transactions hears nothing.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn next(&self, take: Take, wait: Duration) -> BoxFuture<'_, Result<Taken>> {
        boxed(async move {
            take.validate()?;
            let until = until(wait);
            let mut wakeful = self.listen(&take.zone, &take.queue).await?;
            let mut pause = GLANCE.0;
            loop {
                let taken = self.take(take.clone()).await?;
                if !taken.items.is_empty() || Instant::now() >= until {
                    return Ok(taken);
                }
                match taken.retry_after_us.map(|us| Duration::from_micros(us.unsigned_abs())) {
                    Some(paced) => sleep_until(until.min(Instant::now() + paced.min(GLANCE.1))).await,
                    None => drop(wakeful.until(until.min(Instant::now() + pause)).await),
                }
                pause = (pause * 2).min(GLANCE.1);
            }
        })
    }

    /// Keeps an item for so long from now (1 µs to 10 years), while its time is not over.
    ///
    /// # Errors
    /// Conflict: the receipt is of no item of this queue, or is lost: the item's time was over, or it was said already what
    /// becomes of it. And those of [`take`](Self::take).
    pub fn extend<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        receipt: Receipt,
        visible_for: Duration,
    ) -> BoxFuture<'a, Result<Noted>> {
        boxed(async move {
            let for_us = micros(visible_for);
            validate_time("visibility", for_us)?;
            self.say(zone, queue, receipt.txn_id, Progress::Extend(for_us), Sayer::Worker(receipt.seq)).await
        })
    }

    /// Records that an item is worked off. That holds after its time is over, too, as long as nobody else has taken it.
    /// A worker that says it again gets the recorded answer.
    ///
    /// # Errors
    /// Those of [`extend`](Self::extend).
    pub fn done<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        receipt: Receipt,
    ) -> BoxFuture<'a, Result<Noted>> {
        boxed(async move {
            self.say(zone, queue, receipt.txn_id, Progress::Done, Sayer::Worker(receipt.seq)).await
        })
    }

    /// Gives an item back, while its time is not over: it can be taken again after `delay` (0 to 10 years), at its old
    /// place; if this was its last take it is dead. A worker that says it again gets the recorded answer, until
    /// somebody else has taken it.
    ///
    /// # Errors
    /// Those of [`extend`](Self::extend).
    pub fn release<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        receipt: Receipt,
        delay: Duration,
    ) -> BoxFuture<'a, Result<Noted>> {
        boxed(async move {
            let delay_us = micros(delay);
            if delay_us > 0 {
                validate_time("delay", delay_us)?;
            }
            self.say(zone, queue, receipt.txn_id, Progress::Release(delay_us), Sayer::Worker(receipt.seq))
                .await
        })
    }

    /// Tries a dead item again, as if it had never been taken: it waits at its old place, if the backlog has room for
    /// it. The row says who wanted it. A person who says it again, before it is taken, gets the recorded answer.
    ///
    /// # Errors
    /// Conflict: the item is not dead, its deadline is over, or there is no room. Invalid: `by` is empty, or longer than 255
    /// bytes. And those of [`take`](Self::take).
    pub fn redrive<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        txn: Uuid,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Noted>> {
        boxed(async move {
            validate_bytes("the name of who does it", "name", by)?;
            self.say(zone, queue, txn, Progress::Redrive, Sayer::Person(by.to_owned())).await
        })
    }

    /// The state of an item, by the transaction that offered it; None where the queue does not know it.
    ///
    /// Takes no lock. Three round trips.
    ///
    /// # Errors
    /// Invalid: a name or a queue that cannot be stored. And those of [`take`](Self::take).
    pub fn item<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        txn: Uuid,
    ) -> BoxFuture<'a, Result<Option<Item>>> {
        boxed(async move {
            validate_txn(Some(txn))?;
            let item = self.looking(zone, queue, |inner, zone_id, terms| async move {
                inner.within(inner.store.item(zone_id, queue, txn, terms)).await
            });
            Ok(item.await?.map(|item| Item { zone: zone.to_owned(), ..item }))
        })
    }

    /// The dead items of a queue, the most important first, of these what was offered first: at most `most` (1 to 1,000), behind
    /// `after`, if that is one of them.
    ///
    /// # Errors
    /// Those of [`item`](Self::item). Invalid: `most` is out of range, or `after` is no item of the queue.
    pub fn dead<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        after: Option<Uuid>,
        most: u32,
    ) -> BoxFuture<'a, Result<Vec<Item>>> {
        boxed(async move {
            if !(1..=DEAD_MAX).contains(&most) {
                return Err(Error::invalid(format!(
                    "{most} items at once are out of range; use 1 to {DEAD_MAX}"
                )));
            }
            let dead = self.looking(zone, queue, |inner, zone_id, terms| async move {
                inner.within(inner.store.dead(zone_id, queue, after, most, terms)).await
            });
            Ok(dead.await?.into_iter().map(|item| Item { zone: zone.to_owned(), ..item }).collect())
        })
    }

    /// The size of a queue.
    ///
    /// # Errors
    /// Those of [`item`](Self::item).
    pub fn size<'a>(&'a self, zone: &'a str, queue: &'a str) -> BoxFuture<'a, Result<Size>> {
        boxed(async move {
            self.looking(zone, queue, |inner, zone_id, terms| async move {
                inner.within(inner.store.size(zone_id, queue, terms)).await
            })
            .await
        })
    }

    async fn listen(&self, zone: &str, queue: &str) -> Result<Wakeful> {
        let inner = self.shards.of(queue);
        let zone_id = inner.told(inner.within(inner.zone(zone)).await)?.id;
        Ok(inner.listen(zone_id, queue))
    }

    /// Whether anything is offered within a time, without looking; for this project's own tests.
    ///
    /// # Errors
    /// Those of [`Limiter`](crate::Limiter).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn hears<'a>(
        &'a self,
        zone: &'a str,
        queue: &'a str,
        within: Duration,
    ) -> BoxFuture<'a, Result<bool>> {
        boxed(async move { Ok(self.listen(zone, queue).await?.until(until(within)).await) })
    }

    async fn say(&self, zone: &str, queue: &str, txn: Uuid, progress: Progress, who: Sayer) -> Result<Noted> {
        validate_name(zone)?;
        validate_key(queue)?;
        validate_txn(Some(txn))?;
        let owner = self.owner.clone();
        let said = Said { zone: zone.to_owned(), queue: queue.to_owned(), txn, progress, who, owner };
        self.holding(zone.to_owned(), queue.to_owned(), move |inner, zone_id, terms, _| {
            let said = said.clone();
            async move {
                let noted = inner.store.progress(zone_id, &said, terms).await?;
                if noted.state == State::Waiting {
                    inner.wake(zone_id, &said.queue);
                }
                Ok(noted)
            }
        })
        .await
    }

    /// Does something in a queue, one after the other in this process, until it is done or the deadline is over. The work is told
    /// whether it was tried before.
    async fn holding<T, F>(
        &self,
        zone: String,
        queue: String,
        work: impl Fn(Arc<Inner>, i32, Terms, bool) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let until = until(self.shards.first().config.deadline);
        let ask = |inner: Arc<Inner>| {
            let (zone, queue, work) = (zone.clone(), queue.clone(), work.clone());
            async move { inner.holding_of(&zone, queue, until, work).await }
        };
        self.shards.ask(&zone, &queue, until, ask).await
    }

    async fn looking<T, F>(
        &self,
        zone: &str,
        queue: &str,
        look: impl Fn(Arc<Inner>, i32, Terms) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        validate_name(zone)?;
        validate_key(queue)?;
        let until = until(self.shards.first().config.deadline);
        let terms = Terms { isolation: Isolation::RowLock, until };
        let look = &look;
        let ask = |inner: Arc<Inner>| async move {
            let zone_id = inner.within(inner.zone(zone)).await?.id;
            look(inner, zone_id, terms).await
        };
        self.shards.ask(zone, queue, until, ask).await
    }
}
