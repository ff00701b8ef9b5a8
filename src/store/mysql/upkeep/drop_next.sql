-- The next buckets that have rows before a time. The zone twice, the key before, and the time.
select t.zone_id, t.bucket_key, max(t.created_at) as created_at, max(t.seq) as seq
from zone_txn t force index (zone_txn_bucket_uq)
where (t.zone_id > ? or (t.zone_id = ? and t.bucket_key > ?)) and t.created_at < ? and t.sealed
group by t.zone_id, t.bucket_key
order by t.zone_id, t.bucket_key
limit 1000
