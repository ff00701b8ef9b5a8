//! Items of queues: settle what became of them by itself, decide, write.

mod rows;
mod shelf;
mod told;

use uuid::Uuid;

use super::bucket::Bucket;
use super::{Name, Session, Wanted, Writing, append_together, buckets};
use crate::decide::{self, Item, Load};
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::item::{self, Noted, Offer, Offered, Said, Sayer, Size, Take, Taken};
use crate::zone::Queueing;

pub(crate) use shelf::{Behind, Putting, STEP, Shelving, Stored, Which};
use shelf::{Due, Loaded, looked_at};

/// Offers an item under `txn`, or tells what became of it when that was offered before. None where so much was due by itself
/// that a part of it was settled instead: commit, and come again.
pub(crate) async fn offer(
    session: &mut dyn Shelving,
    zone_id: i32,
    offer: &Offer,
    txn: Uuid,
) -> Result<Option<Offered>> {
    let name = (zone_id, offer.queue.as_str());
    let txns: Vec<_> = offer.txn.iter().map(|&txn| (0, txn)).collect();
    let (mut bucket, past) = held(session, name, &txns, true).await?;
    if let Some(row) = past.iter().find(|row| row.kind == Kind::Offer) {
        return told::offered_before(offer, row).map(Some);
    }
    let Queueing { backlog, .. } = queueing(&bucket)?;
    let Some(due) = Due::of(session, name, &mut bucket).await? else { return Ok(None) };
    due.put(session, name).await?;
    let mut shelf = Loaded::new(due.load());
    let lacking = shelf.load.lacks(offer.cost, backlog);
    if lacking > 0 && offer.cost <= backlog && !bucket.refuses(offer.cost)? {
        shelf.read_back(session, name, offer.band, lacking).await?;
        shelf.read_front(session, name, lacking).await?;
    }
    let bid = offer.bid(txn);
    let (offered, before_us) = bucket.act(
        |seen, known, now_us| decide::offer(seen, known, &shelf, bid, now_us),
        |offered| offered.evicted.len(),
        |offered| Some(offered.head),
    )?;
    let mut putting = Putting::new(shelf.load);
    offered.evicted.iter().for_each(|item| putting.change(item, None));
    putting.add(offered.item, offer.payload.as_deref());
    let (hash, evictor) = (offer.payload_hash(), txn.to_string());
    let buckets = [bucket];
    let mut writing = Writing::new(&buckets);
    writing.offer(&bid, offer.txn.is_some(), hash.as_deref(), &evictor, &offered, before_us);
    append(session, name, writing, &putting).await?;
    let [bucket] = &buckets;
    told::offered(offer, txn, &decide::Offered { wait_us: bucket.wait_us(offered.wait_us), ..offered })
        .map(Some)
}

/// Takes what is next. None as for [`offer`].
pub(crate) async fn take(session: &mut dyn Shelving, zone_id: i32, take: &Take) -> Result<Option<Taken>> {
    let name = (zone_id, take.queue.as_str());
    let (mut bucket, _) = held(session, name, &[], true).await?;
    queueing(&bucket)?;
    let Some(due) = Due::of(session, name, &mut bucket).await? else { return Ok(None) };
    let mut shelf = Loaded::new(due.load());
    shelf.front = due.front(session, name, take.most).await?;
    let mut putting = Putting::new(shelf.load);
    let (mut taken, mut retry_after_us) = (Vec::new(), None);
    for _ in 0..take.most {
        let (next, before_us) = bucket.act(
            |seen, known, now_us| decide::take(seen, known, &shelf, take.visible_us, now_us),
            |_| 0,
            |next| next.as_ref().ok().map(|taken| taken.head),
        )?;
        match next {
            Ok(next) => {
                let before = shelf.front.pop_front();
                before.iter().for_each(|before| putting.change(before, Some(next.item)));
                shelf.load = putting.load;
                taken.push((next, before_us));
            }
            Err(wait_us) => {
                retry_after_us = bucket.wait_us(wait_us).filter(|_| taken.is_empty());
                break;
            }
        }
    }
    if taken.is_empty() {
        return Ok(Some(Taken { items: Vec::new(), retry_after_us }));
    }
    let payloads = payloads(session, name, taken.iter().map(|(taken, _)| &taken.item)).await?;
    due.put(session, name).await?;
    let buckets = [bucket];
    let mut writing = Writing::new(&buckets);
    taken.iter().for_each(|(taken, before_us)| writing.take(taken, take.worker.as_deref(), *before_us));
    append(session, name, writing, &putting).await?;
    told::taken(take, taken.into_iter().map(|(taken, _)| taken), payloads).map(Some)
}

/// Records what a worker says of an item, or tells that it was said before. None as for [`offer`].
pub(crate) async fn progress(session: &mut dyn Shelving, zone_id: i32, said: &Said) -> Result<Option<Noted>> {
    let name = (zone_id, said.queue.as_str());
    let (mut bucket, past) = held(session, name, &[(0, said.txn)], true).await?;
    queueing(&bucket)?;
    let receipt = match said.who {
        Sayer::Worker(seq) => Some(seq),
        Sayer::Person(_) => None,
    };
    let is_own = |row: &LedgerRow| row.kind == Kind::Take && said.is_of(row.member.as_deref());
    let took = |seq| past.iter().any(|row| row.seq == seq && is_own(row));
    let offered = past.iter().find(|row| row.kind == Kind::Offer && !row.blocked);
    let offered = offered.filter(|_| receipt.is_none_or(took)).ok_or_else(|| told::unknown(said))?;
    let Some(due) = Due::of(session, name, &mut bucket).await? else { return Ok(None) };
    let load = due.load();
    let item = session.items(name, Which::One(offered.seq)).await?.pop();
    let item = item.and_then(|item| item.at(bucket.now_us()));
    if let Some(row) = told::said_before(said, &past, item.as_ref()) {
        return told::noted_before(said, row, item.as_ref()).map(Some);
    }
    let item = item.ok_or_else(|| told::gone(said, &past))?;
    let (progressed, before_us) = bucket.act(
        |seen, known, now_us| decide::progress(seen, known, load, item, receipt, said.progress, now_us),
        |_| 0,
        |progressed| Some(progressed.head),
    )?;
    due.put(session, name).await?;
    let mut putting = Putting::new(load);
    putting.change(&item, progressed.item);
    let buckets = [bucket];
    let mut writing = Writing::new(&buckets);
    let by = match &said.who {
        Sayer::Worker(_) => None,
        Sayer::Person(name) => Some(name.as_str()),
    };
    writing.progress(&item, said.progress, by, &progressed, before_us);
    append(session, name, writing, &putting).await?;
    told::noted(said, &progressed).map(Some)
}

/// The state of an item; None where the queue's ledger does not know it.
pub(crate) async fn item(
    session: &mut dyn Shelving,
    name: Name<'_>,
    txn: Uuid,
) -> Result<Option<item::Item>> {
    let mut looked = None;
    loop {
        let (bucket, past) = held(session, name, &[(0, txn)], false).await?;
        queueing(&bucket)?;
        let Some(offered) = past.iter().find(|row| row.kind == Kind::Offer) else { return Ok(None) };
        let item = session.items(name, Which::One(offered.seq)).await?.pop();
        let item = item.and_then(|item| item.at(bucket.now_us()));
        let payload = payloads(session, name, item.iter()).await.map(|mut payloads| payloads.pop().flatten());
        // Nothing is held: between two looks others may have said something of it, and taken its payload away.
        let last = past.last().map(|row| row.seq);
        if looked == last && (item.is_none() || payload.is_err()) || item.is_some() && payload.is_ok() {
            return told::item(name.1, &past, item.as_ref(), payload?).map(Some);
        }
        looked = last;
    }
}

/// The dead items of a queue behind one of them, at most so many, with their payloads.
pub(crate) async fn dead(
    session: &mut dyn Shelving,
    name: Name<'_>,
    after: Option<Uuid>,
    most: u32,
) -> Result<Vec<item::Item>> {
    let (bucket, _) = held(session, name, &[], false).await?;
    queueing(&bucket)?;
    let after = match after {
        Some(txn) => Some(place(session, name, txn).await?),
        None => None,
    };
    let mut items = session.items(name, Which::Dead { after, most }).await?;
    // Those that nobody has put down as dead since.
    let (_, died) = looked_at(session, name, bucket.now_us()).await?;
    items.extend(died.into_iter().filter(|item| after < Some((item.band, item.seq))));
    items.sort_by_key(|item| (item.band, item.seq));
    items.truncate(most as usize);
    let payloads = payloads(session, name, items.iter()).await?;
    items.iter().zip(payloads).map(|(item, payload)| told::standing(name.1, item, payload)).collect()
}

/// The band and the offer of an item.
async fn place(session: &mut dyn Shelving, name: Name<'_>, txn: Uuid) -> Result<(u8, i64)> {
    let (_, past) = held(session, name, &[(0, txn)], false).await?;
    let offered = past.iter().find(|row| row.kind == Kind::Offer);
    offered.map(|row| (row.band.unwrap_or_default(), row.seq)).ok_or_else(|| {
        Error::invalid(format!("transaction {txn} offered nothing to this queue; leave it out"))
    })
}

/// The size of a queue.
pub(crate) async fn size(session: &mut dyn Shelving, name: Name<'_>) -> Result<Size> {
    let (bucket, _) = held(session, name, &[], false).await?;
    let Queueing { backlog, .. } = queueing(&bucket)?;
    let (Load { waiting, away }, _) = looked_at(session, name, bucket.now_us()).await?;
    Ok(Size { waiting, away, backlog })
}

/// A bucket, and the rows of the transactions in it.
async fn held<'n>(
    session: &mut dyn Session,
    name: Name<'n>,
    txns: &[(usize, Uuid)],
    moves: bool,
) -> Result<(Bucket<'n>, Vec<LedgerRow>)> {
    let names = [name];
    let mut held = session.hold(&Wanted { names: &names, moves: &[moves], txns, window_us: 0 }).await?;
    let past = held.past.drain(..).map(|(_, row)| row).collect();
    let bucket = buckets(&names, &mut held).pop();
    bucket.map(|bucket| (bucket, past)).ok_or_else(|| Error::database("a queue was not held"))
}

fn queueing(bucket: &Bucket<'_>) -> Result<Queueing> {
    decide::queueing(&bucket.current()?.policy)
}

/// The payloads of items, in their order.
async fn payloads<'i>(
    session: &mut dyn Shelving,
    name: Name<'_>,
    items: impl Iterator<Item = &'i Item>,
) -> Result<Vec<Option<serde_json::Value>>> {
    let items: Vec<_> = items.collect();
    let seqs: Vec<_> = items.iter().filter(|item| item.payload).map(|item| item.seq).collect();
    let stored = if seqs.is_empty() { Vec::new() } else { session.payloads(name, &seqs).await? };
    items
        .into_iter()
        .map(|item| {
            if !item.payload {
                return Ok(None);
            }
            let stored = stored.iter().find(|stored| stored.seq == item.seq);
            stored.filter(|stored| stored.is_genuine()).and_then(Stored::value).map(Some).ok_or_else(|| {
                Error::database(format!(
                    "the payload of item {} was changed from outside, and is not handed out; see: tallygate audit verify",
                    item.txn
                ))
            })
        })
        .collect()
}

/// Appends the rows, and puts the items where they lead to.
async fn append(
    session: &mut dyn Shelving,
    name: Name<'_>,
    writing: Writing<'_>,
    putting: &Putting<'_>,
) -> Result<()> {
    append_together(session, writing, "queue").await?;
    session.put(name, putting).await
}
