//! Leases of capacity: load what is leased, grant, write.

use super::settle::settle;
use super::{Name, Session, Wanted, Writing, append_together, buckets, from_us};
use crate::decide::{Granted, Standing};
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::lease::{Lease, Want};
use crate::zone::Policy;
use uuid::Uuid;

/// Grants what a client asks for under `txn`, or tells what it was granted under that.
pub(crate) async fn lease(session: &mut dyn Session, zone_id: i32, want: &Want, txn: Uuid) -> Result<Lease> {
    let name = (zone_id, want.resource.as_str());
    let txns: Vec<_> = want.txn.iter().map(|&txn| (0, txn)).collect();
    let mut held =
        session.hold(&Wanted { names: &[name], moves: &[true], txns: &txns, window_us: 0 }).await?;
    let past = held.past.drain(..).map(|(_, row)| row).find(|row| row.kind == Kind::Lease);
    let standing = session.leases(name).await?;
    let now_us = held.now_us;
    let mut buckets = buckets(&[name], &mut held);
    if let [bucket] = &buckets[..]
        && let Some(row) = past
    {
        return told_before(want, &row, &bucket.current()?.policy, &standing, now_us);
    }
    follows(want, &standing, now_us)?;
    let mut granted = None;
    settle(session, &mut buckets, |buckets| {
        if let [bucket] = buckets
            && granted.is_none()
        {
            granted = bucket.lease(&standing, want.claim())?;
        }
        Ok(())
    })
    .await?;
    let (granted, before_us) =
        granted.ok_or_else(|| Error::database("a lease that was decided could not be written"))?;
    if want.wants == 0 && own(want, &standing, now_us).is_none() {
        // There is nothing to give back any more.
        return Ok(Lease { seq: granted.head.seq - 1, replayed: true, ..told(want, txn, &granted)? });
    }
    let mut writing = Writing::new(&buckets);
    writing.lease(want, txn, &granted, before_us);
    if !writing.holds.is_empty() {
        writing.drop_ended(0);
    }
    append_together(session, writing, "resource").await?;
    told(want, txn, &granted)
}

/// The leases of a bucket that have not ended.
pub(crate) async fn standing(session: &mut dyn Session, name: Name<'_>) -> Result<Vec<Standing>> {
    let held = session.hold(&Wanted { names: &[name], moves: &[false], txns: &[], window_us: 0 }).await?;
    let mut standing = session.leases(name).await?;
    let forgot = |seq| held.heads.iter().any(|loaded| loaded.head.forgot(seq));
    standing.retain(|lease| lease.ends_us > held.now_us && !forgot(lease.seq));
    Ok(standing)
}

/// A client refreshes the lease that it has, not one that another process was granted under its name.
fn follows(want: &Want, standing: &[Standing], now_us: i64) -> Result<()> {
    match (want.follows, own(want, standing, now_us)) {
        (Some(seq), Some(own)) if own.seq != seq => Err(Error::conflict(format!(
            "client {:?} of {:?} has another lease: row {}, not {seq}; use a name for each process",
            want.client, want.resource, own.seq
        ))),
        _ => Ok(()),
    }
}

/// The lease that the client has.
fn own<'s>(want: &Want, standing: &'s [Standing], now_us: i64) -> Option<&'s Standing> {
    standing.iter().find(|lease| lease.client == want.client && lease.ends_us > now_us)
}

fn told(want: &Want, txn: Uuid, granted: &Granted) -> Result<Lease> {
    Ok(Lease {
        zone: want.zone.clone(),
        resource: want.resource.clone(),
        client: want.client.clone(),
        txn_id: txn,
        seq: granted.head.seq,
        wants: want.wants,
        has: granted.has,
        reason: granted.reason,
        weight: want.weight,
        band: want.band,
        capacity: granted.limit,
        remaining: granted.remaining,
        safe_capacity: granted.safe_capacity,
        refresh_us: granted.refresh_us,
        length_us: granted.ends_us - granted.decided_us,
        granted_at: from_us(granted.decided_us)?,
        zone_version: granted.head.zone_version,
        replayed: false,
    })
}

/// The lease that was granted before, for as long as it still lasts. Its safe capacity follows from the clients that there are
/// now.
fn told_before(
    want: &Want,
    row: &LedgerRow,
    policy: &Policy,
    standing: &[Standing],
    now_us: i64,
) -> Result<Lease> {
    let band = row.band.unwrap_or_default();
    let is_same = row.member.as_deref() == Some(&want.client)
        && (row.cost, row.checks, band) == (want.wants, want.weight, want.band);
    if !is_same {
        return Err(Error::conflict(format!(
            "transaction {} asked for {} units for client {:?} before; use another one",
            row.txn_id,
            row.cost,
            row.member.as_deref().unwrap_or_default()
        )));
    }
    let clients = i64::try_from(standing.len()).unwrap_or(i64::MAX).max(1);
    let safe = policy.sharing().and_then(|sharing| sharing.safe_capacity);
    Ok(Lease {
        zone: want.zone.clone(),
        resource: want.resource.clone(),
        client: want.client.clone(),
        txn_id: row.txn_id,
        seq: row.seq,
        wants: row.cost,
        has: row.spent,
        reason: row.reason,
        weight: row.checks,
        band,
        capacity: row.zone_limit,
        remaining: row.remaining,
        safe_capacity: safe.unwrap_or(row.zone_limit / clients),
        refresh_us: row.retry_after_us.unwrap_or_default(),
        length_us: standing
            .iter()
            .find(|lease| lease.seq == row.seq)
            .map_or(0, |lease| lease.ends_us.saturating_sub(now_us).max(0)),
        granted_at: from_us(row.at_us)?,
        zone_version: row.zone_version,
        replayed: true,
    })
}
