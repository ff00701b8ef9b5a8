//! Each algorithm by its definition. Every charge is kept, and with each question all of them are counted again.
//! Nothing here is taken from the core: amounts are wide, levels are walked through, waits are searched for.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};
use tallygate::decide::Ask;
use tallygate::policy::{Algorithm, BanFrom, Calendar, CalendarUnit, Mode};
use tallygate::{Policy, Reason};

pub struct Naive {
    pub policy: Policy,
    charges: Vec<Charge>,
    /// Counts what happens, to tell apart what happens at one time.
    order: usize,
    /// When checks were blocked, since the last ban began.
    blocks: Vec<i64>,
    banned_until_us: Option<i64>,
    bans: i32,
}

#[derive(Clone)]
struct Charge {
    seq: i64,
    at_us: i64,
    order: usize,
    amount: i64,
    /// The time when it ended or will end. A hold that ends by itself does so before all else that happens then.
    end: Option<(i64, usize)>,
    member: Option<String>,
}

/// The answer to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub reason: Reason,
    pub spent: i64,
    pub remaining: i64,
    pub retry_after_us: Option<i64>,
}

/// An amount in parts of a unit: so many, of which so many are one.
#[derive(Clone, Copy)]
pub struct Parts(pub i128, pub i128);

impl Naive {
    pub fn new(policy: Policy) -> Self {
        Self { policy, charges: Vec::new(), order: 0, blocks: Vec::new(), banned_until_us: None, bans: 0 }
    }

    /// Decides and keeps what is spent. `seq` is the name of the charge.
    pub fn check(&mut self, ask: &Ask<'_>, now_us: i64, seq: i64) -> Told {
        self.order += 1;
        let policy = self.policy;
        let limit = policy.limit() - if ask.critical { 0 } else { policy.reserve() };
        if policy.mode() == Mode::Off {
            return Told { reason: Reason::Off, spent: 0, remaining: limit, retry_after_us: None };
        }
        let banned = self.banned_until_us.is_some_and(|until_us| until_us > now_us);
        let wanted = if self.counts(ask.member, now_us) { 0 } else { ask.cost };
        let fits = self.fits(wanted, limit, now_us);
        let reason = match () {
            () if wanted > limit => Reason::ExceedsLimit,
            () if banned && ask.cost > 0 => Reason::Banned,
            () if !fits => Reason::OverLimit,
            () if ask.held_back && ask.cost > 0 => Reason::HeldBack,
            () if ask.cost > 0 && self.is_soft(wanted, now_us) => Reason::Soft,
            () => Reason::WithinLimit,
        };
        let counts = policy.count_blocked() && !ask.held_back && reason == Reason::OverLimit;
        let spent = if reason.allows() || counts { wanted } else { 0 };
        let mut retry_after_us = None;
        if spent > 0 {
            let end = self.end_of(ask, now_us).filter(|_| reason.allows());
            self.charges.push(Charge {
                seq,
                at_us: now_us,
                order: self.order,
                amount: spent,
                end: end.map(|end_us| (end_us, 0)),
                member: ask.member.map(str::to_owned),
            });
        }
        if matches!(reason, Reason::OverLimit | Reason::Banned) {
            retry_after_us = Some(self.wait(wanted, limit, now_us));
        }
        let strikes = matches!(reason, Reason::OverLimit | Reason::ExceedsLimit) && ask.cost > 0;
        if strikes && !banned {
            self.strike(now_us, retry_after_us);
        }
        if let (Some(wait_us), Some(until_us)) = (&mut retry_after_us, self.banned_until_us) {
            *wait_us = (*wait_us).max(until_us.saturating_sub(now_us));
        }
        // Nothing is left where nothing passes.
        let nothing = banned && reason != Reason::ExceedsLimit;
        let remaining = if nothing { 0 } else { self.room(limit, now_us) };
        Told { reason, spent, remaining, retry_after_us }
    }

    /// A charge ends now, but for what is kept of it; what is charged beyond that is a charge of now.
    pub fn end(&mut self, seq: i64, kept: i64, extra: i64, now_us: i64, extra_seq: i64) {
        self.order += 1;
        let charge = self.charges.iter_mut().find(|charge| charge.seq == seq).unwrap();
        if charge.end.is_none_or(|(end_us, _)| end_us > now_us) {
            let rest = Charge { amount: kept, end: None, ..charge.clone() };
            charge.amount -= kept;
            charge.end = Some((now_us, self.order));
            self.charges.extend((kept > 0).then_some(rest));
        }
        if extra > 0 {
            self.order += 1;
            let (order, end, member) = (self.order, None, None);
            self.charges.push(Charge { seq: extra_seq, at_us: now_us, order, amount: extra, end, member });
        }
    }

    pub fn ban(&mut self, until_us: i64) {
        self.banned_until_us = Some(until_us);
        self.blocks.clear();
    }

    pub fn unban(&mut self) {
        self.banned_until_us = None;
        self.bans = 0;
        self.blocks.clear();
    }

    fn strike(&mut self, now_us: i64, wait_us: Option<i64>) {
        let Some(rule) = self.policy.ban() else { return };
        self.blocks.push(now_us);
        let recent = self.blocks.iter().filter(|&&at_us| now_us - at_us < rule.within_us).count();
        if recent < rule.after as usize {
            return;
        }
        let quiet =
            self.banned_until_us.is_none_or(|until_us| now_us > until_us.saturating_add(rule.longest_us));
        self.bans = if quiet { 1 } else { self.bans + 1 };
        let mut length_us = i128::from(rule.for_us);
        for _ in 1..self.bans {
            length_us = (length_us * i128::from(rule.factor)).min(i128::from(rule.longest_us));
        }
        let from_us = match rule.from {
            BanFrom::Block => now_us,
            BanFrom::Window => now_us.saturating_add(wait_us.unwrap_or(0)),
        };
        self.ban(from_us.saturating_add(length_us as i64));
    }

    /// The time when a charge of now ends by itself.
    fn end_of(&self, ask: &Ask<'_>, now_us: i64) -> Option<i64> {
        match self.policy.algorithm() {
            Algorithm::Distinct | Algorithm::Concurrency => Some(now_us + self.policy.window_us()),
            _ => ask.ttl_us.map(|ttl_us| now_us + ttl_us),
        }
    }

    fn live(&self, now_us: i64) -> impl Iterator<Item = &Charge> {
        self.charges.iter().filter(move |charge| charge.end.is_none_or(|(end_us, _)| end_us > now_us))
    }

    /// Is the member counted already?
    fn counts(&self, member: Option<&str>, now_us: i64) -> bool {
        member.is_some() && self.live(now_us).any(|charge| charge.member.as_deref() == member)
    }

    fn fits(&self, cost: i64, limit: i64, now_us: i64) -> bool {
        let Parts(used, unit) = self.used(now_us);
        cost == 0 || used + i128::from(cost) * unit <= i128::from(limit) * unit
    }

    fn is_soft(&self, cost: i64, now_us: i64) -> bool {
        let Parts(used, unit) = self.used(now_us);
        self.policy.soft_rate().is_some_and(|soft| used + i128::from(cost) * unit > i128::from(soft) * unit)
    }

    pub fn room(&self, limit: i64, now_us: i64) -> i64 {
        let Parts(used, unit) = self.used(now_us);
        ((i128::from(limit) * unit - used).max(0) / unit) as i64
    }

    /// The least wait: room only grows while nothing arrives.
    fn wait(&self, cost: i64, limit: i64, now_us: i64) -> i64 {
        let fits = |wait_us: i64| self.fits(cost, limit, now_us.saturating_add(wait_us));
        if fits(0) {
            return 0;
        }
        let (mut blocked_us, mut passes_us) = (0, i64::MAX.saturating_sub(now_us));
        if !fits(passes_us) {
            return passes_us;
        }
        while passes_us - blocked_us > 1 {
            let middle_us = blocked_us + (passes_us - blocked_us) / 2;
            if fits(middle_us) { passes_us = middle_us } else { blocked_us = middle_us }
        }
        passes_us
    }

    pub fn used(&self, now_us: i64) -> Parts {
        let window_us = self.policy.window_us();
        let sum = |counts: &dyn Fn(i64) -> bool| -> i128 {
            self.live(now_us).filter(|charge| counts(charge.at_us)).map(|c| i128::from(c.amount)).sum()
        };
        let wide = |us: i64| i128::from(us);
        match self.policy.algorithm() {
            Algorithm::SlidingLog => Parts(sum(&|at_us| wide(now_us) - wide(at_us) < wide(window_us)), 1),
            Algorithm::FixedWindow => match self.policy.by_calendar() {
                Some(calendar) => {
                    let now = page(now_us, calendar);
                    Parts(sum(&|at_us| page(at_us, calendar) == now), 1)
                }
                None => {
                    let now = now_us.div_euclid(window_us);
                    Parts(sum(&|at_us| at_us.div_euclid(window_us) == now), 1)
                }
            },
            Algorithm::SlidingCounter => {
                let slots = i128::from(self.policy.slots().unwrap());
                let slot_us = (wide(window_us) / slots) as i64;
                let age = |at_us: i64| wide(now_us.div_euclid(slot_us)) - wide(at_us.div_euclid(slot_us));
                let full = sum(&|at_us| age(at_us) < slots);
                let leaving = sum(&|at_us| age(at_us) == slots);
                let rest_us = slot_us - now_us.rem_euclid(slot_us);
                Parts(full + leaving * wide(rest_us) / wide(slot_us), 1)
            }
            Algorithm::Distinct | Algorithm::Concurrency => Parts(sum(&|_| true), 1),
            _ => Parts(self.volume(now_us), wide(window_us)),
        }
    }

    /// The content of the leaky bucket, in parts of a unit that are as many as the window has microseconds: it drains
    /// `rate` of them in each.
    fn volume(&self, now_us: i64) -> i128 {
        let mut pours: Vec<(i64, usize, i64)> = Vec::new();
        for charge in &self.charges {
            pours.push((charge.at_us, charge.order, charge.amount));
            pours.extend(charge.end.map(|(end_us, order)| (end_us, order, -charge.amount)));
        }
        pours.sort_unstable();
        let (mut volume, mut at_us) = (0_i128, i64::MIN);
        let drained = |volume: i128, from_us: i64, to_us: i64| {
            let flow = (i128::from(to_us) - i128::from(from_us)) * i128::from(self.policy.rate());
            (volume - flow).max(0)
        };
        for (pour_us, _, amount) in pours.into_iter().filter(|pour| pour.0 <= now_us) {
            volume = drained(volume, at_us, pour_us);
            volume = (volume + i128::from(amount) * i128::from(self.policy.window_us())).max(0);
            at_us = pour_us;
        }
        drained(volume, at_us, now_us)
    }
}

/// The page of the calendar, as everybody in the zone would have torn it off by then: the latest that the clock on the
/// wall has shown. It shows one again only when it was set back, which it is by at most three hours, at a whole minute.
fn page(at_us: i64, Calendar { unit, time_zone }: Calendar) -> String {
    let shown = |time: DateTime<Utc>| {
        let local = time_zone.shows(time);
        let (day, hour, minute) = (local.ordinal0(), local.hour(), local.minute());
        match unit {
            CalendarUnit::Month => format!("{:08}-{:02}", local.year(), local.month()),
            CalendarUnit::Day => format!("{:08}-{day:03}", local.year()),
            CalendarUnit::Hour => format!("{:08}-{day:03} {hour:02}", local.year()),
            CalendarUnit::Minute => format!("{:08}-{day:03} {hour:02}:{minute:02}", local.year()),
        }
    };
    // A wait is searched for up to the end of time, which has no date.
    let Some(now) = DateTime::<Utc>::from_timestamp_micros(at_us) else { return "never".to_owned() };
    let offset = |time: DateTime<Utc>| time_zone.shows(time).offset().local_minus_utc();
    if offset(now - TimeDelta::hours(3)) == offset(now) {
        return shown(now);
    }
    let minute = now - TimeDelta::microseconds(at_us.rem_euclid(60_000_000));
    let before = (0..180).map(|n| shown(minute - TimeDelta::minutes(n) - TimeDelta::microseconds(1)));
    before.chain([shown(now)]).max().unwrap()
}
