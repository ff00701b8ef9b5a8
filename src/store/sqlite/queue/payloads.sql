-- The payloads of items, and the parts of them that their rows say. ?3 lists the rows of their offers.
select i.seq, i.payload, t.member as recorded
from jsonb_each(?3) j
cross join zone_item i on i.zone_id = ?1 and i.bucket_key = ?2 and i.seq = j.value ->> 0
cross join zone_txn t on t.zone_id = ?1 and t.bucket_key = ?2 and t.created_at = i.offered_at and t.seq = i.seq
