//! A decision in one line.

use tallygate::{Decision, Reason};

use super::duration::show_wait;
use super::output::{dim, green, plain, red};

/// `allowed  login 42  4 of 5 left  txn …`
pub fn line(decision: &Decision) -> String {
    let word = if decision.blocked { red("blocked") } else { green("allowed") };
    let (zone, key) = (plain(&decision.zone), plain(&decision.key));
    let left = format!("{} of {} left", decision.remaining, decision.limit);
    let what = match (decision.reason, decision.retry_after_us) {
        (Reason::ExceedsLimit, _) => {
            format!("{}  can never pass: costs more than the whole limit", decision.reason)
        }
        (reason, Some(us)) => format!("{reason}  try again in {}", show_wait(us)),
        _ => String::new(),
    };
    let replayed = if decision.replayed { "  decided before" } else { "" };
    let gap = if what.is_empty() { "" } else { "  " };
    let txn = dim(&format!("txn {}", decision.txn_id));
    format!("{word}  {zone} {key}{gap}{what}  {left}{replayed}  {txn}")
}
