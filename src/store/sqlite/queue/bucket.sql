-- The next items of a queue, by the rows of their offers, with what these say of their payloads.
select i.seq, i.txn_id, i.cost, i.band, i.offered_at, i.deadline_at, i.place, i.due_at, i.takes, i.is_last, i.receipt, i.payload,
    t.member as recorded
from zone_item i
left join zone_txn t
    on t.zone_id = i.zone_id and t.bucket_key = i.bucket_key and t.created_at = i.offered_at and t.seq = i.seq
where i.zone_id = ?1 and i.bucket_key = ?2 and i.seq > ?3
order by i.seq
limit 500
