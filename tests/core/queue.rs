//! Queues: order, pace, room, receipts and waits, against a naive model over a long life.

use std::time::Duration;

use fastrand::Rng;
use tallygate::decide::{
    Bid, Bucket, Head, Item, Load, Need, Place, Progress, Shelf, Version, offer, progress, take,
};
use tallygate::policy::Queueing;
use tallygate::uuid::Uuid;
use tallygate::{Policy, Reason};

use crate::book::NoLedger;

/// The core with its items in a list.
#[derive(Clone)]
struct Queue {
    versions: Vec<Version>,
    head: Head,
    items: Vec<Item>,
}

impl Shelf for Queue {
    fn load(&self) -> Load {
        self.items.iter().fold(Load::default(), Load::with)
    }

    fn front(&self) -> impl Iterator<Item = &Item> {
        let mut waiting: Vec<_> = self.items.iter().filter(|item| item.place == Place::Waiting).collect();
        waiting.sort_by_key(|item| (item.band, item.seq));
        waiting.into_iter()
    }

    fn back(&self, band: u8) -> impl Iterator<Item = &Item> {
        let mut less: Vec<_> =
            self.items.iter().filter(|item| item.place == Place::Waiting && item.band > band).collect();
        less.sort_by_key(|item| std::cmp::Reverse((item.band, item.seq)));
        less.into_iter()
    }
}

impl Queue {
    fn new(policy: Policy) -> Self {
        let versions = vec![Version { version: 1, policy, changed_us: 0 }];
        Self { versions, head: Head::default(), items: Vec::new() }
    }

    fn settle(&mut self, now_us: i64) {
        self.items = self.items.iter().filter_map(|item| item.at(now_us)).collect();
    }

    fn bucket(&self) -> Bucket<'_> {
        Bucket { versions: &self.versions, head: &self.head, holds: &[] }
    }

    fn offer(&mut self, bid: Bid, now_us: i64) -> tallygate::decide::Offered {
        self.settle(now_us);
        let offered = offer(self.bucket(), &NoLedger, self, bid, now_us).unwrap();
        let more = i64::try_from(offered.evicted.len()).unwrap();
        self.items.retain(|item| !offered.evicted.contains(item));
        self.items.extend(offered.item);
        self.head = Head { seq: offered.head.seq + more, ..offered.head };
        offered
    }

    fn take(&mut self, visible_us: i64, now_us: i64) -> Result<tallygate::decide::Taken, Option<i64>> {
        self.settle(now_us);
        let taken = take(self.bucket(), &NoLedger, self, visible_us, now_us).unwrap()?;
        self.put(taken.item.seq, Some(taken.item));
        self.head = taken.head;
        Ok(taken)
    }

    /// A receipt is left aside by a redrive.
    fn say(&mut self, txn: Uuid, receipt: i64, said: Progress, now_us: i64) -> Option<()> {
        self.settle(now_us);
        let item = *self.items.iter().find(|item| item.txn == txn)?;
        let told = progress(self.bucket(), &NoLedger, self.load(), item, Some(receipt), said, now_us);
        let told = match told {
            Ok(told) => told,
            Err(Need::Failed(error)) => {
                assert!(error.is_conflict(), "{error}");
                return None;
            }
            Err(need) => panic!("{need:?}"),
        };
        self.put(item.seq, told.item);
        self.head = told.head;
        Some(())
    }

    fn put(&mut self, seq: i64, item: Option<Item>) {
        self.items.retain(|item| item.seq != seq);
        self.items.extend(item);
    }
}

/// The holder of an item of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Has {
    Nobody,
    Worker {
        receipt: i64,
        until_us: i64,
    },
    /// Given back for a time.
    Time {
        until_us: i64,
    },
    Grave,
}

#[derive(Clone, Debug)]
struct Modelled {
    txn: Uuid,
    cost: i64,
    band: u8,
    order: usize,
    deadline_us: Option<i64>,
    takes: i32,
    has: Has,
    /// The receipt that may still be used for done.
    receipt: Option<i64>,
}

/// The same without cleverness: what a person would do with a list and a jar of tokens.
struct Model {
    rate: i128,
    window: i128,
    burst: i128,
    backlog: i64,
    max_takes: i32,
    /// Tokens, as parts of which a token has `window`.
    jar: i128,
    jar_us: i64,
    items: Vec<Modelled>,
    offers: usize,
}

impl Model {
    fn pass_to(&mut self, now_us: i64) {
        self.jar = (self.jar + i128::from(now_us - self.jar_us) * self.rate).min(self.burst * self.window);
        self.jar_us = now_us;
        for item in &mut self.items {
            match item.has {
                Has::Worker { until_us, .. } if until_us <= now_us && item.takes >= self.max_takes => {
                    item.has = Has::Grave;
                }
                Has::Worker { until_us, .. } | Has::Time { until_us } if until_us <= now_us => {
                    item.has = Has::Nobody;
                }
                _ => {}
            }
        }
        self.items.retain(|item| {
            item.has != Has::Nobody || item.deadline_us.is_none_or(|deadline_us| deadline_us > now_us)
        });
    }

    fn counted(&self) -> i64 {
        self.items.iter().filter(|item| item.has != Has::Grave).map(|item| item.cost).sum()
    }

    /// The items that an offer evicts, if it finds room.
    fn offer(&mut self, bid: &Bid, now_us: i64) -> Result<Vec<Uuid>, ()> {
        self.pass_to(now_us);
        if i128::from(bid.cost) > self.burst || bid.cost > self.backlog {
            return Err(());
        }
        let mut left = self.items.clone();
        let mut evicted = Vec::new();
        loop {
            let counted: i64 = left.iter().filter(|item| item.has != Has::Grave).map(|item| item.cost).sum();
            if counted + bid.cost <= self.backlog {
                break;
            }
            let victim = left
                .iter()
                .filter(|item| item.has == Has::Nobody && item.band > bid.band)
                .max_by_key(|item| (item.band, item.order))
                .map(|item| item.txn);
            let Some(victim) = victim else { return Err(()) };
            left.retain(|item| item.txn != victim);
            evicted.push(victim);
        }
        self.offers += 1;
        left.push(Modelled {
            txn: bid.txn,
            cost: bid.cost,
            band: bid.band,
            order: self.offers,
            deadline_us: bid.deadline_us.map(|us| now_us + us),
            takes: 0,
            has: Has::Nobody,
            receipt: None,
        });
        self.items = left;
        Ok(evicted)
    }

    fn take(&mut self, visible_us: i64, now_us: i64, receipt: i64) -> Option<Uuid> {
        self.pass_to(now_us);
        let waiting = self.items.iter_mut().filter(|item| item.has == Has::Nobody);
        let next = waiting.min_by_key(|item| (item.band, item.order))?;
        if self.jar < i128::from(next.cost) * self.window {
            return None;
        }
        self.jar -= i128::from(next.cost) * self.window;
        next.takes += 1;
        next.has = Has::Worker { receipt, until_us: now_us + visible_us };
        next.receipt = Some(receipt);
        Some(next.txn)
    }

    fn say(&mut self, txn: Uuid, receipt: i64, said: Progress, now_us: i64) -> Option<()> {
        self.pass_to(now_us);
        let place = self.items.iter().position(|item| item.txn == txn)?;
        let counted = self.counted();
        let item = &mut self.items[place];
        let has_it = matches!(item.has, Has::Worker { receipt: own, .. } if own == receipt);
        match said {
            Progress::Done
                if item.receipt == Some(receipt)
                    && (item.has != Has::Grave
                        || item.deadline_us.is_none_or(|deadline_us| deadline_us > now_us)) =>
            {
                self.items.remove(place);
            }
            Progress::Extend(us) if has_it => item.has = Has::Worker { receipt, until_us: now_us + us },
            Progress::Redrive
                if item.has == Has::Grave
                    && counted + item.cost <= self.backlog
                    && item.deadline_us.is_none_or(|deadline_us| deadline_us > now_us) =>
            {
                (item.has, item.takes, item.receipt) = (Has::Nobody, 0, None);
            }
            Progress::Release(us) if has_it => {
                item.receipt = None;
                item.has = match item.takes >= self.max_takes {
                    true => Has::Grave,
                    false => Has::Time { until_us: now_us + us },
                };
                self.pass_to(now_us);
            }
            _ => return None,
        }
        Some(())
    }
}

fn policy(rng: &mut Rng) -> (Policy, Model) {
    let (rate, window) = (rng.i64(1..20), rng.i64(1..500));
    let (burst, backlog, max_takes) = (rng.i64(1..15), rng.i64(1..60), rng.i32(1..4));
    let policy = Policy::new(
        tallygate::policy::Algorithm::Queue,
        rate,
        Duration::from_micros(window as u64),
        Some(burst),
    )
    .unwrap()
    .with_queueing(Some(Queueing { backlog, max_takes }));
    policy.validate().unwrap();
    let model = Model {
        rate: rate.into(),
        window: window.into(),
        burst: burst.into(),
        backlog,
        max_takes,
        jar: i128::from(burst) * i128::from(window),
        jar_us: 0,
        items: Vec::new(),
        offers: 0,
    };
    (policy, model)
}

/// Everything that a queue says over a long life is what the model says.
#[test]
fn a_queue_does_what_a_list_and_a_jar_of_tokens_would() {
    let mut rng = Rng::with_seed(16);
    let (mut refused, mut evicted, mut taken, mut lost, mut dead, mut redriven) = (0, 0, 0, 0, 0, 0);
    for _ in 0..1_000 {
        let (policy, mut model) = policy(&mut rng);
        let mut queue = Queue::new(policy);
        let mut receipts: Vec<(Uuid, i64)> = Vec::new();
        let mut now_us = 0;
        for _ in 0..300 {
            now_us += rng.i64(0..200);
            let context = |what: &str| format!("{what} at {now_us}, {policy}");
            match rng.u8(0..11) {
                0..4 => {
                    let bid = Bid {
                        txn: Uuid::from_u128(rng.u128(1..)),
                        cost: rng.i64(1..16),
                        band: rng.u8(0..4),
                        deadline_us: rng.bool().then(|| rng.i64(1..2_000)),
                        payload: false,
                    };
                    let expected = model.offer(&bid, now_us);
                    let offered = queue.offer(bid, now_us);
                    let victims: Vec<_> = offered.evicted.iter().map(|item| item.txn).collect();
                    assert_eq!(offered.item.map(|_| victims).ok_or(()), expected, "{}", context("offer"));
                    assert_eq!(offered.remaining, model.backlog - model.counted(), "{}", context("offer"));
                    let never = bid.cost > policy.limit() || bid.cost > model.backlog;
                    assert_eq!(offered.reason == Reason::ExceedsLimit, never);
                    assert_eq!(offered.wait_us.is_some(), offered.reason == Reason::OverLimit);
                    refused += usize::from(expected.is_err());
                    evicted += offered.evicted.len();
                }
                4..7 => {
                    let visible_us = rng.i64(1..1_500);
                    let expected = model.take(visible_us, now_us, queue.head.seq + 1);
                    let next = queue.take(visible_us, now_us);
                    assert_eq!(next.as_ref().ok().map(|next| next.item.txn), expected, "{}", context("take"));
                    if let Err(Some(wait_us)) = next
                        && queue.items.iter().all(|item| item.due_us.is_none())
                    {
                        // An honest wait, where nothing comes or goes by itself: not a microsecond earlier.
                        assert!(queue.clone().take(1, now_us + wait_us - 1).is_err(), "{}", context("early"));
                    }
                    if let Ok(next) = next {
                        receipts.push((next.item.txn, next.head.seq));
                        taken += 1;
                    }
                }
                _ if receipts.is_empty() => {}
                said => {
                    let (txn, receipt) = receipts[rng.usize(0..receipts.len())];
                    let receipt = if rng.u8(0..20) == 0 { receipt + 1 } else { receipt };
                    let said = match said {
                        7 => Progress::Extend(rng.i64(1..1_000)),
                        8 => Progress::Done,
                        9 => Progress::Redrive,
                        _ => Progress::Release(rng.i64(0..300)),
                    };
                    let expected = model.say(txn, receipt, said, now_us);
                    assert_eq!(queue.say(txn, receipt, said, now_us), expected, "{}", context("say"));
                    lost += usize::from(expected.is_none());
                    redriven += usize::from(expected.is_some() && said == Progress::Redrive);
                }
            }
            dead += usize::from(model.items.iter().any(|item| item.has == Has::Grave));
            assert!(queue.load().waiting + queue.load().away <= model.backlog);
        }
    }
    // All of it happened.
    assert!([refused, evicted, taken, lost, dead, redriven].into_iter().all(|count| count > 1_000));
}

/// Lets workers keep up until a time: they take what the pace lets, the moment it does, and are done with it.
fn keep_up(queue: &mut Queue, until_us: i64, mut now_us: i64) {
    loop {
        let away: Vec<_> = queue.items.iter().filter_map(|item| Some((item.txn, item.receipt?))).collect();
        for (txn, receipt) in away {
            queue.say(txn, receipt, Progress::Done, now_us);
        }
        match queue.take(1_000_000, now_us) {
            Ok(_) => {}
            Err(Some(wait_us)) if now_us + wait_us <= until_us => now_us += wait_us,
            Err(_) => return,
        }
    }
}

/// An offer that there is no room for is told a wait: by draining at the zone's pace there is none before, and if workers keep
/// up there is room then.
#[test]
fn the_wait_that_an_offer_is_told_holds() {
    let mut rng = Rng::with_seed(162);
    let (mut told, mut paced) = (0, 0);
    for _ in 0..4_000 {
        let (policy, _) = policy(&mut rng);
        let mut queue = Queue::new(policy);
        let one_us = policy.window_us().div_ceil_of(policy.rate());
        let mut now_us = 0;
        for _ in 0..60 {
            now_us += rng.i64(0..60);
            if rng.u8(0..4) == 0 {
                match queue.take(1_000_000_000, now_us) {
                    Ok(taken) if rng.bool() => {
                        queue.say(taken.item.txn, taken.head.seq, Progress::Done, now_us);
                    }
                    _ => {}
                }
                continue;
            }
            let cost = rng.i64(1..=policy.limit());
            let bid = |band| Bid {
                txn: Uuid::from_u128(u128::from(band) + 1),
                cost,
                band,
                deadline_us: None,
                payload: false,
            };
            let bid = Bid { txn: Uuid::from_u128(rng.u128(1..)), ..bid(rng.u8(0..3)) };
            let before = queue.clone();
            let offered = queue.offer(bid, now_us);
            let Some(wait_us) = offered.wait_us else { continue };
            told += 1;
            let mut then = before.clone();
            keep_up(&mut then, now_us + wait_us, now_us);
            let passes = then.offer(bid, now_us + wait_us);
            assert_eq!(passes.reason, Reason::WithinLimit, "{wait_us} µs of {policy}");
            if wait_us > one_us {
                paced += 1;
                let mut early = before;
                keep_up(&mut early, now_us + wait_us - 1, now_us);
                let blocked = early.offer(bid, now_us + wait_us - 1);
                assert_eq!(blocked.reason, Reason::OverLimit, "{wait_us} µs of {policy}");
            }
        }
    }
    assert!(told > 10_000 && paced > 1_000, "{told} {paced}");
}

trait DivCeil {
    fn div_ceil_of(self, by: Self) -> Self;
}

impl DivCeil for i64 {
    fn div_ceil_of(self, by: Self) -> Self {
        (self + by - 1) / by
    }
}

/// A limit that is lowered below what an item costs does not stop the queue: it is taken when all that can be taken at once is
/// there, and the next one waits for the rest of it.
#[test]
fn what_costs_more_than_can_be_taken_at_once_does_not_stop_the_queue() {
    let policy = |burst| {
        Policy::new(tallygate::policy::Algorithm::Queue, 1, Duration::from_micros(10), Some(burst))
            .unwrap()
            .with_queueing(Some(Queueing::new(100)))
    };
    let mut queue = Queue::new(policy(8));
    let bid = |n, cost| Bid { txn: Uuid::from_u128(n), cost, band: 0, deadline_us: None, payload: false };
    queue.offer(bid(1, 8), 0);
    queue.offer(bid(2, 1), 0);
    queue.versions.push(Version { version: 2, policy: policy(2), changed_us: 5 });
    assert_eq!(queue.take(100, 10).unwrap().item.cost, 8);
    assert_eq!(queue.take(100, 10).unwrap_err(), Some(70), "6 in debt, and the one of its own");
    assert_eq!(queue.take(100, 80).unwrap().item.cost, 1);
}

/// Any numbers that can be stored are decided without a panic.
#[test]
fn extreme_numbers_are_decided() {
    let most = 1 << 40;
    let policy = Policy::queue(most, Duration::from_micros(1), most).unwrap();
    let bid = |n, cost| Bid {
        txn: Uuid::from_u128(n),
        cost,
        band: 255,
        deadline_us: Some(i64::MAX),
        payload: false,
    };
    for now_us in [i64::MIN, -1, 0, i64::MAX / 2] {
        let mut queue = Queue::new(policy);
        assert!(queue.offer(bid(1, most), now_us).item.is_some());
        assert_eq!(queue.offer(bid(2, 1), now_us).reason, Reason::OverLimit);
        assert_eq!(queue.offer(bid(3, most + 1), now_us).reason, Reason::ExceedsLimit);
        if let Ok(taken) = queue.take(i64::MAX, now_us) {
            queue.say(taken.item.txn, taken.head.seq, Progress::Release(i64::MAX), now_us);
        }
    }
}
