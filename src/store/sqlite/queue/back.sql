-- The items that wait and are less important than ?3, in the order in which they make room, behind (?4, ?5).
select i.seq, i.txn_id, i.cost, i.band, i.offered_at as offered_us, i.deadline_at as deadline_us, i.place, i.due_at as due_us, i.takes,
    i.is_last, i.receipt, i.payload is not null as payload
from zone_item i indexed by zone_item_order
where i.zone_id = ?1 and i.bucket_key = ?2 and i.place = 'waiting' and i.band > ?3 and (i.band, i.seq) < (?4, ?5)
order by i.band desc, i.seq desc
limit ?6
