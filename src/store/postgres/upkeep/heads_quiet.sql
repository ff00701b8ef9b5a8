-- The next buckets that were quiet for long. $1 the zone, $2 the key before, $3 since when.
select b.bucket_key
from zone_bucket_lock b
where b.zone_id = $1 and b.bucket_key > $2 and b.last_at < $3
order by b.bucket_key
limit 500
