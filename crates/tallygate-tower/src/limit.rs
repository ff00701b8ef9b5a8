//! One limit of a request.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;

use crate::who::{Who, everybody};

/// A value that is made of the head of a request.
pub(crate) type OfHead<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// The end of the charge that is made of an answer.
pub(crate) type OfAnswer = Arc<dyn Fn(&response::Parts) -> After + Send + Sync>;

/// One limit: a zone, whom it is about, and what a request costs.
///
/// ```
/// use tallygate_tower::{ClientAddress, Limit};
/// let limit = Limit::new("uploads").by(ClientAddress::of_peer()).cost(|head| {
///     let length = head.headers.get(http::header::CONTENT_LENGTH);
///     let bytes: Option<i64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
///     bytes.unwrap_or(1_000_000).max(1) // who does not say it pays for much
/// });
/// # let _ = limit;
/// ```
#[derive(Clone)]
pub struct Limit {
    pub(crate) zone: Arc<str>,
    pub(crate) who: Arc<dyn Who>,
    pub(crate) nobody: Nobody,
    pub(crate) cost: Option<OfHead<i64>>,
    pub(crate) critical: Option<OfHead<bool>>,
    pub(crate) member: Option<Arc<dyn Who>>,
    pub(crate) reserved_for: Option<Duration>,
}

/// The meanings of a request that does not say whom it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nobody {
    /// It is answered with 400.
    #[default]
    Refuse,
    /// All such requests share a bucket, whose key is `nobody`.
    Share,
    /// The limit is not about it. A client that can leave out what names it is not limited then.
    Skip,
}

/// The ends of a charge once the service has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum After {
    /// It stays.
    Keep,
    /// It is given back before the answer goes out: the password was right. Where the client named the transaction it
    /// stays, since he could come again with it, be allowed, and have paid nothing.
    GiveBack,
    /// Of limits that [reserve](Limit::reserved_for): so much is charged in the end; of others it stays.
    Charge(i64),
    /// Of limits that [reserve](Limit::reserved_for): each byte of the answer's body that was sent is charged, once it
    /// ends; of others it stays.
    ChargeBytes,
    /// Of limits that [reserve](Limit::reserved_for): the service settles or cancels it itself, by the transaction in
    /// [`Decided`](crate::Decided); of others it stays.
    Leave,
}

impl Limit {
    /// A limit of everybody together, at a cost of 1.
    pub fn new(zone: impl Into<String>) -> Self {
        Self {
            zone: zone.into().into(),
            who: Arc::new(everybody()),
            nobody: Nobody::default(),
            cost: None,
            critical: None,
            member: None,
            reserved_for: None,
        }
    }

    /// A bucket for each of these.
    #[must_use]
    pub fn by(mut self, who: impl Who) -> Self {
        self.who = Arc::new(who);
        self
    }

    /// Sets the meaning of a request that does not say whom it comes from.
    #[must_use]
    pub fn nobody(mut self, nobody: Nobody) -> Self {
        self.nobody = nobody;
        self
    }

    /// Sets the cost of a request, in the zone's unit: 0 to 2^40. Cost 0 always passes, also where the bucket is
    /// banned: do not let a client choose it.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> i64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Sets which requests may take from the reserve of the zone.
    #[must_use]
    pub fn critical(mut self, critical: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.critical = Some(Arc::new(critical));
        self
    }

    /// Names the member that the request is about, in a zone that counts distinct members: five accounts from
    /// one address.
    #[must_use]
    pub fn member(mut self, member: impl Who) -> Self {
        self.member = Some(Arc::new(member));
        self
    }

    /// The cost is reserved for so long (1 µs to 10 years), and settled once the service has answered; see [`After`]. Where
    /// it never does, the reservation runs out and gives the cost back.
    #[must_use]
    pub fn reserved_for(mut self, time: Duration) -> Self {
        self.reserved_for = Some(time);
        self
    }
}
