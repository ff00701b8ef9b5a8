-- The item of an offer.
select i.seq, i.txn_id, i.cost, i.band, i.offered_at as offered_us, i.deadline_at as deadline_us, i.place, i.due_at as due_us, i.takes,
    i.is_last, i.receipt, i.payload is not null as payload
from zone_item i
where i.zone_id = ?1 and i.bucket_key = ?2 and i.seq = ?3
