//! A policy in a line, as people would say it.

use std::fmt;

use super::duration::show_duration;
use super::{Algorithm, BanFrom, BlockedRows, Durability, Mode, OnOutage, Policy};

/// `5 per 60s`; `100 per 1s, burst 500, relaxed, blocked rows coalesced`; `5000 per month in Europe/Berlin`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(&self.asked()))?;
        self.local_us().map_or(Ok(()), |local_us| write!(f, ", local {}", show_duration(local_us)))
    }
}

fn words(policy: &Policy) -> String {
    let mut text = match policy.by_calendar() {
        Some(calendar) => format!("{} per {} in {}", policy.rate(), calendar.unit, calendar.time_zone),
        None if policy.algorithm() == Algorithm::Concurrency => {
            format!("{} at once, each up to {}", policy.rate(), show_duration(policy.window_us()))
        }
        None if policy.algorithm() == Algorithm::Capacity => {
            format!("{} handed out, each for {}", policy.rate(), show_duration(policy.window_us()))
        }
        None if policy.algorithm() == Algorithm::Queue => {
            format!("a queue served at {} per {}", policy.rate(), show_duration(policy.window_us()))
        }
        None => format!("{} per {}", policy.rate(), show_duration(policy.window_us())),
    };
    let mut add = |more: String| text += &format!(", {more}");
    policy.burst().into_iter().for_each(|burst| add(format!("burst {burst}")));
    policy.slots().into_iter().for_each(|slots| add(format!("slots {slots}")));
    policy.soft_rate().into_iter().for_each(|soft| add(format!("soft from {soft}")));
    if policy.reserve() > 0 {
        add(format!("reserve {}", policy.reserve()));
    }
    if policy.mode() != Mode::default() {
        add(policy.mode().to_string());
    }
    if policy.count_blocked() {
        add("counts blocked".to_owned());
    }
    if let Some(ban) = policy.ban() {
        let [within, first, longest] = [ban.within_us, ban.for_us, ban.longest_us].map(show_duration);
        add(format!("ban for {first} after {} blocked in {within}", ban.after));
        if ban.factor > 1 {
            add(format!("then times {} up to {longest}", ban.factor));
        }
        if ban.from != BanFrom::default() {
            add(format!("from the {}", ban.from));
        }
    }
    if policy.on_outage() != OnOutage::default() {
        add(format!("{} on outage", policy.on_outage()));
    }
    if policy.durability() != Durability::default() {
        add(policy.durability().to_string());
    }
    if policy.blocked_rows() != BlockedRows::default() {
        add(format!("blocked rows {}", policy.blocked_rows()));
    }
    if let Some(sharing) = policy.sharing() {
        add(format!("share {}, refresh every {}", sharing.share, show_duration(sharing.refresh_us)));
        sharing.safe_capacity.into_iter().for_each(|safe| add(format!("safe {safe}")));
        sharing.guaranteed.into_iter().for_each(|units| add(format!("{units} guaranteed to each band")));
    }
    if let Some(queueing) = policy.queueing() {
        let takes = if queueing.max_takes == 1 { "take" } else { "takes" };
        add(format!("backlog {}, dead after {} {takes}", queueing.backlog, queueing.max_takes));
    }
    text
}
