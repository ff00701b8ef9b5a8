-- The next items that are due by ?3, behind the one that is due at ?4, of the offer ?5.
select i.seq, i.txn_id, i.cost, i.band, i.offered_at as offered_us, i.deadline_at as deadline_us, i.place, i.due_at as due_us, i.takes,
    i.is_last, i.receipt, i.payload is not null as payload
from zone_item i indexed by zone_item_due
where i.zone_id = ?1 and i.bucket_key = ?2 and i.due_at <= ?3
    and (i.due_at, i.seq) > (?4, ?5)
order by i.due_at, i.seq
limit ?6
