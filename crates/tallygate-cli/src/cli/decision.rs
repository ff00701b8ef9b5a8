//! A decision in one line.

use tallygate::{Decision, Reason};

use super::clock::Clock;
use super::duration::show_wait;
use super::output::{dim, green, plain, red};

/// `allowed  login 42  4 of 5 left  txn …`
pub fn line(decision: &Decision) -> String {
    let word = if decision.blocked { red("blocked") } else { green("allowed") };
    let (zone, key) = (plain(&decision.zone), plain(&decision.key));
    let left = format!("{} of {} left", decision.remaining, decision.limit);
    let what = match (decision.reason, decision.retry_after_us) {
        (Reason::ExceedsLimit, _) if decision.blocked => {
            format!("{}  can never pass: costs more than the whole limit", decision.reason)
        }
        // The wait of one that is told again was true when it was made.
        (reason, Some(us)) if decision.blocked && !decision.replayed => {
            format!("{reason}  try again in {}", show_wait(us))
        }
        (reason, _) if decision.is_shadowed() => format!("{reason}, but the zone only shadows"),
        (Reason::Soft, _) => "soft limit passed".to_owned(),
        (Reason::WithinLimit, _) => String::new(),
        (reason, _) => reason.to_string(),
    };
    let delay = decision.delay_us.filter(|&us| us > 0);
    let delay = delay.map(|us| format!("  go on in {}", show_wait(us))).unwrap_or_default();
    let ends = decision.ends_at.map(|at| format!("  ends {}", Clock::UTC.show(at))).unwrap_or_default();
    let replayed = if decision.replayed { "  decided before" } else { "" };
    let gap = if what.is_empty() { "" } else { "  " };
    let txn = dim(&format!("txn {}", decision.txn_id));
    format!("{word}  {zone} {key}{gap}{what}{delay}{ends}  {left}{replayed}  {txn}")
}
