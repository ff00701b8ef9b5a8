//! The layer, and how it is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;
use tallygate::Limiter;
use tower_layer::Layer;

use crate::answer::OnBlocked;
use crate::fields::Fields;
use crate::limit::{After, Limit, Nobody, OfAnswer, OfHead};
use crate::service::RateLimited;
use crate::who::Who;

/// A layer that lets a request pass where its limits do. See the [crate](crate) for an example.
///
/// Clones share everything. One `RateLimit` on several routes is one limit.
#[derive(Clone)]
pub struct RateLimit {
    pub(crate) set: Arc<Set>,
}

/// The settings of a layer.
#[derive(Clone)]
pub(crate) struct Set {
    pub limiter: Limiter,
    pub limits: Vec<Limit>,
    pub on_blocked: OnBlocked,
    pub fields: Fields,
    pub secret: Option<Arc<[u8]>>,
    pub longest_delay: Duration,
    pub is_idempotent: bool,
    pub unless: Option<OfHead<bool>>,
    pub after: Option<OfAnswer>,
}

impl RateLimit {
    /// A limit of everybody together, at a cost of 1: say [`by`](Self::by) whom it is instead.
    pub fn new(limiter: Limiter, zone: impl Into<String>) -> Self {
        Self::of(limiter, [Limit::new(zone)])
    }

    /// Several limits, or one with more to be said of it: all pass, or none is spent from.
    pub fn of(limiter: Limiter, limits: impl IntoIterator<Item = Limit>) -> Self {
        let set = Set {
            limiter,
            limits: limits.into_iter().collect(),
            on_blocked: OnBlocked::default(),
            fields: Fields::default(),
            secret: None,
            longest_delay: Duration::from_secs(10),
            is_idempotent: false,
            unless: None,
            after: None,
        };
        Self { set: Arc::new(set) }
    }

    fn with(mut self, change: impl FnOnce(&mut Set)) -> Self {
        change(Arc::make_mut(&mut self.set));
        self
    }

    /// The last limit has a bucket for each of these.
    #[must_use]
    pub fn by(self, who: impl Who) -> Self {
        self.with_last(|limit| limit.by(who))
    }

    /// Sets the meaning, for the last limit, of a request that does not say whom it comes from.
    #[must_use]
    pub fn nobody(self, nobody: Nobody) -> Self {
        self.with_last(|limit| limit.nobody(nobody))
    }

    fn with_last(self, change: impl FnOnce(Limit) -> Limit) -> Self {
        self.with(|set| {
            if let Some(last) = set.limits.pop() {
                set.limits.push(change(last));
            }
        })
    }

    /// One limit more.
    #[must_use]
    pub fn and(self, limit: Limit) -> Self {
        self.with(|set| set.limits.push(limit))
    }

    /// Sets the answer to a blocked request.
    #[must_use]
    pub fn on_blocked(self, on_blocked: OnBlocked) -> Self {
        self.with(|set| set.on_blocked = on_blocked)
    }

    /// Sets the header fields that answers have.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        self.with(|set| set.fields = fields)
    }

    /// By which keys that are too long are hashed, and partition keys in header fields: 32 random bytes, the same in every
    /// process of the service, for as long as its limits are to hold. Without it, a request whose key is too long is
    /// answered with 400.
    #[must_use]
    pub fn secret(self, secret: impl Into<Vec<u8>>) -> Self {
        self.with(|set| set.secret = Some(secret.into().into()))
    }

    /// The longest time that a request waits for its turn in a leaky queue, 10 seconds by itself. A request that would
    /// have to wait longer is answered with 503, and its place given back.
    #[must_use]
    pub fn longest_delay(self, time: Duration) -> Self {
        self.with(|set| set.longest_delay = time)
    }

    /// The header `Idempotency-Key`, a UUID, names the transaction: a request that is sent again is decided as before, and
    /// spends nothing. Only for clients that may choose: one who sends a key again passes as often as he likes, so the service
    /// must know it too; and one who was blocked needs another key to be asked about anew.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.with(|set| set.is_idempotent = true)
    }

    /// Which requests pass unasked: health checks, preflights.
    #[must_use]
    pub fn unless(self, unless: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|set| set.unless = Some(Arc::new(unless)))
    }

    /// Sets the end of the charge once the service has answered.
    ///
    /// ```
    /// # use tallygate_tower::{After, RateLimit};
    /// # fn example(layer: RateLimit) -> RateLimit {
    /// // Only failures count.
    /// layer.after(|answer| if answer.status.is_success() { After::GiveBack } else { After::Keep })
    /// # }
    /// ```
    #[must_use]
    pub fn after(self, after: impl Fn(&response::Parts) -> After + Send + Sync + 'static) -> Self {
        self.with(|set| set.after = Some(Arc::new(after)))
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zones: Vec<_> = self.set.limits.iter().map(|limit| &limit.zone).collect();
        f.debug_struct("RateLimit").field("zones", &zones).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, set: Arc::clone(&self.set) }
    }
}
