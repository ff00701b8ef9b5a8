-- The next buckets that hold anything. $1 the zone, $2 the key before.
select b.bucket_key
from zone_bucket_lock b
where b.zone_id = $1 and b.bucket_key > $2 and b.holding
order by b.bucket_key
limit 200
