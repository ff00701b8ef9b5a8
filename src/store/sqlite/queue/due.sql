-- The items that are due by ?3.
select i.seq, i.txn_id, i.cost, i.band, i.offered_at as offered_us, i.deadline_at as deadline_us, i.place, i.due_at as due_us, i.takes,
    i.is_last, i.receipt, i.payload is not null as payload
from zone_item i indexed by zone_item_due
where i.zone_id = ?1 and i.bucket_key = ?2 and i.due_at <= ?3
