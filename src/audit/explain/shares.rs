//! The capacity that a lease was a share of, and the settlements that a cost was predicted from.

use super::{Explaining, Leased, OtherLease, Taught, failed, time};
use crate::audit::book::Book;
use crate::decide::{self, Claim, SHARED_SHAPE};
use crate::entry::{Kind, LedgerRow};
use crate::error::Result;

impl Explaining<'_> {
    /// The capacity that a lease was a share of.
    pub(super) fn leased(
        &self,
        row: &LedgerRow,
        bucket: decide::Bucket<'_>,
        book: &Book,
    ) -> Result<Option<Leased>> {
        let (Kind::Lease, Some(client), Some(band)) = (row.kind, row.member.as_deref(), row.band) else {
            return Ok(None);
        };
        let claim = Claim { client, wants: row.cost, weight: row.checks, band };
        let leases = self.replay.leases();
        let granted = decide::lease(bucket, leases, book, claim, row.at_us).map_err(failed)?;
        let others = leases.iter().filter(|lease| lease.client != client && lease.ends_us > row.at_us);
        let others = others.map(|lease| {
            Ok(OtherLease {
                seq: lease.seq,
                client: lease.client.clone(),
                wants: lease.wants,
                weight: lease.weight,
                band: lease.band,
                has: lease.has,
                ends_at: time(lease.ends_us)?,
            })
        });
        let others = others.collect::<Result<_>>()?;
        Ok(Some(Leased { share: granted.share, since: time(granted.since_us)?, others }))
    }

    /// The settlements that the cost of a reservation was predicted from.
    pub(super) fn predicted(&self, row: &LedgerRow) -> Result<Option<Taught>> {
        let shape = row.member.as_deref().filter(|_| row.is_predicted());
        let known = shape.and_then(|shape| decide::predict(self.replay.shapes(), shape, row.at_us));
        let taught = known.map(|known| {
            Ok(Taught {
                cost: known.cost(),
                samples: known.samples,
                learned_at: time(known.learned_us)?,
                shared: known.name == SHARED_SHAPE,
            })
        });
        taught.transpose()
    }
}
