//! Taking units by which a process decides checks by itself: load, take, write.

use super::settle::settle;
use super::{Session, Taking, Took, Wanted, Writing, append_together, buckets};
use crate::decide::UnitsTaken;
use crate::entry::{Kind, LedgerRow};
use crate::error::Result;

/// Takes units of a bucket, or tells what was taken under that transaction; None where none are to be had.
pub(crate) async fn take_units(session: &mut dyn Session, taking: &Taking) -> Result<Option<Took>> {
    let name = (taking.zone_id, taking.key.as_str());
    let txns: Vec<_> = taking.again.then_some((0, taking.txn)).into_iter().collect();
    let mut held =
        session.hold(&Wanted { names: &[name], moves: &[true], txns: &txns, window_us: 0 }).await?;
    if let Some((_, row)) = held.past.iter().find(|(_, row)| row.kind == Kind::Local) {
        return Ok(Some(before(row)));
    }
    let mut buckets = buckets(&[name], &mut held);
    let mut taken = None;
    settle(session, &mut buckets, |buckets| {
        if let [bucket] = buckets
            && taken.is_none()
        {
            taken = bucket.take_units(taking.wants)?;
        }
        Ok(())
    })
    .await?;
    let Some((Some(taken), before_us)) = taken else { return Ok(None) };
    let mut writing = Writing::new(&buckets);
    writing.take_units(taking, &taken, before_us);
    append_together(session, writing, "bucket").await?;
    let UnitsTaken { reason, units, limit, remaining, ends_us, decided_us, head } = taken;
    let zone_version = head.zone_version;
    Ok(Some(Took {
        txn: taking.txn,
        reason,
        units,
        limit,
        remaining,
        at_us: decided_us,
        ends_us,
        zone_version,
    }))
}

/// The units that were taken by a call whose answer was lost.
fn before(row: &LedgerRow) -> Took {
    Took {
        txn: row.txn_id,
        reason: row.reason,
        units: row.spent,
        limit: row.zone_limit,
        remaining: row.remaining,
        at_us: row.at_us,
        ends_us: row.ends_us.unwrap_or(row.at_us),
        zone_version: row.zone_version,
    }
}
