//! Capacity: how much of a resource each client may use until its lease ends.
//!
//! A client says what it wants, how many it stands for (its weight) and how important it is (its band). Of all that is
//! known to be wanted follows its share; it is granted so much of that as nobody else holds. So what is granted never
//! exceeds the capacity, and comes to the shares as the others ask again.

use super::bring::Brought;
use super::{Bucket, Head, Hold, Ledger, Need, bring};
use crate::decision::Reason;
use crate::error::Error;
use crate::zone::{Share, Sharing};

/// The most that a client can stand for.
pub const WEIGHT_MAX: i32 = 1_000_000;

/// The claim of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'c> {
    /// Its name.
    pub client: &'c str,
    /// Units, 0 to 2^40.
    pub wants: i64,
    /// The number of clients for which it stands: 1 to [`WEIGHT_MAX`].
    pub weight: i32,
    /// The importance: 0 is the most.
    pub band: u8,
}

/// A lease as it was granted. Times are microseconds since 1970 in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its row.
    pub seq: i64,
    /// The time since when the client has had leases that followed each other.
    pub since_us: i64,
    /// The client whose lease it is.
    pub client: String,
    /// The units that it wanted.
    pub wants: i64,
    /// The number of clients for which it stood.
    pub weight: i32,
    /// The importance that it had.
    pub band: u8,
    /// The units that it was granted.
    pub has: i64,
    /// The time when it ends.
    pub ends_us: i64,
}

impl Standing {
    fn claim(&self) -> Claim<'_> {
        let Self { wants, weight, band, .. } = *self;
        Claim { client: &self.client, wants, weight, band }
    }
}

/// A lease, and the head that it leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// [`Reason::WithinLimit`]: all that was wanted; [`Reason::OverLimit`]: less; [`Reason::Banned`]: nothing.
    pub reason: Reason,
    /// The units that the client may use.
    pub has: i64,
    /// The units that it could have, were what others hold their shares already.
    pub share: i64,
    /// The capacity.
    pub limit: i64,
    /// The units of the capacity that nobody holds.
    pub remaining: i64,
    /// The units that the client may use when it cannot ask.
    pub safe_capacity: i64,
    /// The time after which it asks again.
    pub refresh_us: i64,
    /// When it ends; when it was granted, where nothing is wanted.
    pub ends_us: i64,
    /// The time when it was granted.
    pub decided_us: i64,
    /// The time since when the client has had leases that followed each other.
    pub since_us: i64,
    /// The bucket's next head.
    pub head: Head,
}

impl Granted {
    /// True when something was wanted and nothing was granted.
    #[must_use]
    pub fn blocked(&self, wants: i64) -> bool {
        wants > 0 && self.has == 0
    }

    /// The lease as what ends by itself, in place of those that the client had; None where it wants nothing any more.
    #[must_use]
    pub fn hold(&self, client: &str) -> Option<Hold> {
        (self.ends_us > self.decided_us).then(|| Hold {
            seq: self.head.seq,
            charged_us: self.decided_us,
            amount: self.has,
            ends_us: self.ends_us,
            member: Some(client.to_owned()),
        })
    }
}

/// Grants a lease, or refreshes the one that the client has.
///
/// `standing` are the leases of the bucket, in any order; what has ended of them does not matter.
///
/// # Errors
/// The [`Need`] that `ledger` answers with; else [`Need::Failed`]. Invalid: no policy was given, the zone hands out no
/// capacity, or the bucket's running total would leave 63 bits.
pub fn lease(
    bucket: Bucket<'_>,
    standing: &[Standing],
    ledger: &impl Ledger,
    claim: Claim<'_>,
    now_us: i64,
) -> Result<Granted, Need> {
    let now_us = bucket.head.clamp(now_us);
    let current = bucket.versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
    let Brought { head, level, policy } = bring::to(&bucket, ledger, now_us)?;
    let Some(sharing) = policy.sharing() else {
        return Err(Error::invalid(format!(
            "a zone of {} hands out no capacity; {}, or use a zone of the algorithm capacity",
            policy.algorithm(),
            policy.algorithm().is_asked_by()
        ))
        .into());
    };
    let live = |lease: &&Standing| lease.ends_us > now_us && !head.forgot(lease.seq);
    let others = || standing.iter().filter(live).filter(|lease| lease.client != claim.client);

    let limit = policy.limit();
    let banned = head.banned_until_us.is_some_and(|until_us| until_us > now_us);
    // In the order in which they came. Not by name: names can be erased, and every row must still be derived.
    let own = standing.iter().filter(live).find(|lease| lease.client == claim.client);
    let place = own.map_or((now_us, i64::MAX), |lease| (lease.since_us, lease.seq));
    let mut claims: Vec<_> =
        others().map(|lease| ((lease.since_us, lease.seq), lease.claim())).chain([(place, claim)]).collect();
    claims.sort_unstable_by_key(|(place, claim)| (claim.band, *place));
    let since_us = place.0;
    let place = claims.iter().position(|(of, _)| *of == place).unwrap_or_default();
    let claims: Vec<_> = claims.into_iter().map(|(_, claim)| claim).collect();
    let target = shares(&sharing, limit, &claims).get(place).copied().unwrap_or_default();
    let held = others().fold(0_i64, |held, lease| held.saturating_add(lease.has));
    let free = limit.saturating_sub(held).max(0);
    let has = match sharing.share {
        _ if banned => 0,
        Share::None | Share::Static => target,
        Share::Proportional | Share::Fair | Share::Bands => target.min(free),
    };
    // A client that lacks some of its share has it once the others have asked again.
    let refresh_us = if has < target { (sharing.refresh_us / 4).max(1) } else { sharing.refresh_us };
    // A unit that is lent on cannot outlast the lease that it is lent from.
    let until_us = head.exception.filter(|own| own.limit.is_some()).and_then(|own| own.until_us);
    let refresh_us = until_us.map_or(refresh_us, |until_us| refresh_us.min(until_us - now_us).max(1));
    let length_us = if claim.wants > 0 { policy.window_us() } else { 0 };
    let ends_us = now_us.saturating_add(length_us).min(until_us.unwrap_or(i64::MAX));
    let clients = i64::try_from(claims.len()).unwrap_or(i64::MAX);
    let spent_total = head.spent_total.checked_add(has).ok_or_else(|| {
        Error::invalid(format!(
            "the bucket has granted {} in all and cannot count {has} more",
            head.spent_total
        ))
    })?;
    Ok(Granted {
        reason: match () {
            () if banned => Reason::Banned,
            () if has < claim.wants => Reason::OverLimit,
            () => Reason::WithinLimit,
        },
        has,
        share: target,
        limit,
        remaining: free.saturating_sub(has).max(0),
        safe_capacity: sharing.safe_capacity.unwrap_or(limit / clients),
        refresh_us,
        ends_us,
        decided_us: now_us,
        since_us,
        head: Head {
            seq: head.seq + 1,
            last_us: now_us,
            spent_total,
            level,
            zone_version: current.version,
            ..*head
        },
    })
}

/// The share of each of some claims in a capacity, in their order, which decides who has the units that cannot be
/// divided: whole units, at most what is wanted, and, but for [`Share::None`] and [`Share::Static`], together as much
/// as is wanted or the capacity.
///
/// ```
/// use tallygate::decide::{Claim, shares};
/// use tallygate::policy::Share;
/// use tallygate::Policy;
/// let policy = Policy::capacity(120, std::time::Duration::from_secs(60))?;
/// let claim = |client, wants| Claim { client, wants, weight: 1, band: 0 };
/// let claims = [claim("a", 1_000), claim("b", 60), claim("c", 10)];
/// assert_eq!(shares(&policy.sharing().unwrap(), 120, &claims), [55, 55, 10]);
/// # Ok::<(), tallygate::Error>(())
/// ```
#[must_use]
pub fn shares(sharing: &Sharing, capacity: i64, claims: &[Claim<'_>]) -> Vec<i64> {
    match sharing.share {
        Share::None => claims.iter().map(|claim| claim.wants).collect(),
        Share::Static => claims.iter().map(|claim| claim.wants.min(capacity)).collect(),
        Share::Proportional => proportional(capacity, claims),
        Share::Fair => fair(capacity, claims),
        Share::Bands => bands(capacity, sharing.guaranteed.unwrap_or(0), claims),
    }
}

/// Weighted max-min by filling up: who wants least by his weight is served first, as long as all can have as much.
fn fair(capacity: i64, claims: &[Claim<'_>]) -> Vec<i64> {
    let mut order: Vec<_> = (0..claims.len()).collect();
    let by_weight = |n: usize, of: usize| i128::from(claims[n].wants) * i128::from(claims[of].weight);
    order.sort_by(|&a, &b| by_weight(a, b).cmp(&by_weight(b, a)));
    let mut left = i128::from(capacity.max(0));
    let mut weight = weight_of(claims);
    let mut shares = vec![0_i64; claims.len()];
    let served = order.iter().take_while(|&&n| {
        let Claim { wants, weight: own, .. } = claims[n];
        let all = i128::from(wants) * weight <= left * i128::from(own);
        if all {
            shares[n] = wants;
            left -= i128::from(wants);
            weight -= i128::from(own);
        }
        all
    });
    let served = served.count();
    let rest = &mut order[served..];
    rest.sort_unstable();
    divide(left, rest, &mut shares, |n| left * i128::from(claims[n].weight) / weight.max(1));
    shares
}

/// Doorman's `PROPORTIONAL_SHARE`: an equal share e each; who wants no more has what he wants; who wants more has e, and
/// (wants − e) × what the small leave / what the big lack.
fn proportional(capacity: i64, claims: &[Claim<'_>]) -> Vec<i64> {
    let capacity = i128::from(capacity.max(0));
    let weight = weight_of(claims);
    let wanted: i128 = claims.iter().map(|claim| i128::from(claim.wants)).sum();
    if wanted <= capacity {
        return claims.iter().map(|claim| claim.wants).collect();
    }
    // All in parts of a unit that are as many as the weights together.
    let equal = |n: usize| capacity * i128::from(claims[n].weight);
    let over = |n: usize| i128::from(claims[n].wants) * weight - equal(n);
    let (big, small): (Vec<_>, Vec<_>) = (0..claims.len()).partition(|&n| over(n) > 0);
    let mut shares = vec![0_i64; claims.len()];
    small.iter().for_each(|&n| shares[n] = claims[n].wants);
    let extra: i128 = small.iter().map(|&n| -over(n)).sum();
    let need: i128 = big.iter().map(|&n| over(n)).sum();
    let left = capacity - small.iter().map(|&n| i128::from(claims[n].wants)).sum::<i128>();
    divide(left, &big, &mut shares, |n| (equal(n) + scale(over(n), extra, need)) / weight.max(1));
    shares
}

/// Shares out the guaranteed units, and then one band after the other; fair within each.
fn bands(capacity: i64, guaranteed: i64, claims: &[Claim<'_>]) -> Vec<i64> {
    let mut bands: Vec<u8> = claims.iter().map(|claim| claim.band).collect();
    bands.sort_unstable();
    bands.dedup();
    let of = |band: u8| claims.iter().enumerate().filter(move |(_, claim)| claim.band == band);
    let wanted = |band: u8| of(band).fold(0_i64, |sum, (_, claim)| sum.saturating_add(claim.wants));
    let mut left = capacity.max(0);
    let mut take = |most: i64| {
        let taken = most.min(left);
        left -= taken;
        taken
    };
    let mut budgets: Vec<i64> = bands
        .iter()
        .enumerate()
        .map(|(n, &band)| if n == 0 { 0 } else { take(wanted(band).min(guaranteed)) })
        .collect();
    for (budget, &band) in budgets.iter_mut().zip(&bands) {
        *budget += take(wanted(band) - *budget);
    }
    let mut shares = vec![0; claims.len()];
    for (&budget, &band) in budgets.iter().zip(&bands) {
        let (places, claims): (Vec<_>, Vec<_>) = of(band).map(|(n, claim)| (n, *claim)).unzip();
        places.iter().zip(fair(budget, &claims)).for_each(|(&n, share)| shares[n] = share);
    }
    shares
}

/// Gives each its part, rounded down, and the units that are left one by one in order.
fn divide(all: i128, among: &[usize], shares: &mut [i64], part: impl Fn(usize) -> i128) {
    let mut left = all;
    for &n in among {
        shares[n] = i64::try_from(part(n)).unwrap_or(i64::MAX);
        left -= i128::from(shares[n]);
    }
    among.iter().take(usize::try_from(left).unwrap_or(0)).for_each(|&n| shares[n] += 1);
}

/// `a × b / c`, rounded down, for 0 ≤ b ≤ c; the product may have more than 127 bits.
fn scale(a: i128, b: i128, c: i128) -> i128 {
    let (mut whole, mut rest) = (0_i128, 0_i128);
    for bit in (0..i128::BITS - a.leading_zeros()).rev() {
        rest = rest * 2 + if a >> bit & 1 == 1 { b } else { 0 };
        whole = whole * 2 + rest / c.max(1);
        rest %= c.max(1);
    }
    whole
}

fn weight_of(claims: &[Claim<'_>]) -> i128 {
    claims.iter().map(|claim| i128::from(claim.weight)).sum()
}
