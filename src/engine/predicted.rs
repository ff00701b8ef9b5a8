//! Reservations whose cost is predicted: load what is known of their shape, decide, write.

use super::bucket::Turn;
use super::settle::settle;
use super::{Name, Request, Session, Wanted, Writing, append_together, batch, buckets};
use crate::decide::{Shape, predict};
use crate::decision::Decision;
use crate::error::{Error, Result};

/// Reserves what requests of its shape cost lately, or else the cost of the request; or tells what was reserved before. With the
/// decision, the cost that was asked for.
pub(crate) async fn reserve(session: &mut dyn Session, request: &Request) -> Result<(Decision, i64)> {
    let name = (request.zone_id, request.key.as_str());
    let txns: Vec<_> = if request.fresh { Vec::new() } else { vec![(0, request.txn)] };
    let mut held =
        session.hold(&Wanted { names: &[name], moves: &[true], txns: &txns, window_us: 0 }).await?;
    let mut request = request.clone();
    let past = held.past.drain(..).map(|(_, row)| row).find(|row| row.kind.is_charge());
    if let Some(row) = past {
        batch::refuse_taken(&row)?;
        request.cost = row.cost;
        return Ok((batch::past(&request, &row)?, row.cost));
    }
    let shapes = session.shapes(name).await?;
    let mut buckets = buckets(&[name], &mut held);
    let known = buckets.first().zip(request.shape.as_deref());
    let known = known.and_then(|(bucket, shape)| predict(&shapes, shape, bucket.now_us()));
    request.cost = known.map_or(request.cost, Shape::cost);
    let ask = batch::ask(&request);
    let mut turn: Option<Turn> = None;
    settle(session, &mut buckets, |buckets| {
        if let [bucket] = buckets {
            match &mut turn {
                Some(turn) => bucket.decide_again(turn, &ask)?,
                None => turn = bucket.decide(&ask, true)?,
            }
        }
        Ok(())
    })
    .await?;
    let turn = turn.ok_or_else(|| Error::database("a reservation could not be decided"))?;
    let mut writing = Writing::new(&buckets);
    writing.check(0, &request, None, &turn);
    append_together(session, writing, "bucket").await?;
    Ok((batch::tell(&request, &buckets[0], &turn)?, request.cost))
}

/// The knowledge of a shape in a bucket.
pub(crate) async fn known(session: &mut dyn Session, name: Name<'_>, shape: &str) -> Result<Option<Shape>> {
    let held = session.hold(&Wanted { names: &[name], moves: &[false], txns: &[], window_us: 0 }).await?;
    let shapes = session.shapes(name).await?;
    let last_us = held.heads.first().map_or(0, |loaded| loaded.head.last_us);
    Ok(predict(&shapes, shape, held.now_us.max(last_us)).cloned())
}
