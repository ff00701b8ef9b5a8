-- The number of rows of each of the next buckets that are to go and did not go before. The zone twice, the key before,
-- and the time before which they are.
select t.zone_id, t.bucket_key, count(case when t.seq > coalesce(d.seq, 0) then 1 end) as ledger_rows
from zone_txn t force index (zone_txn_bucket_uq)
left join zone_txn_dropped d on d.zone_id = t.zone_id and d.bucket_key = t.bucket_key
where (t.zone_id > ? or (t.zone_id = ? and t.bucket_key > ?)) and t.created_at < ? and t.sealed
group by t.zone_id, t.bucket_key
order by t.zone_id, t.bucket_key
limit 1000
