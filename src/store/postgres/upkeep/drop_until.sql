-- The last of the next buckets that have rows before a time. $1 the zone and $2 the key before, $3 the time.
select n.zone_id, n.bucket_key
from (
    select t.zone_id, t.bucket_key
    from zone_txn t
    where (t.zone_id, t.bucket_key) > ($1, $2 collate "C") and t.created_at < $3
    group by t.zone_id, t.bucket_key
    order by t.zone_id, t.bucket_key
    limit 1000
) n
order by n.zone_id desc, n.bucket_key desc
limit 1
