-- The number of rows of each of the next buckets that are to go and did not go before. $1 the zone and $2 the key
-- before, $3 the time before which they are.
select t.zone_id, t.bucket_key, count(*) filter (where t.seq > coalesce(d.seq, 0)) as ledger_rows
from zone_txn t
left join zone_txn_dropped d on d.zone_id = t.zone_id and d.bucket_key = t.bucket_key
where (t.zone_id, t.bucket_key) > ($1, $2 collate "C") and t.created_at < $3
group by t.zone_id, t.bucket_key
order by t.zone_id, t.bucket_key
limit 1000
