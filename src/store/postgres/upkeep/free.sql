-- Locks a bucket, unless somebody else holds it: then it comes the next time. $1 the zone, $2 the key.
select b.bucket_key
from zone_bucket_lock b
where b.zone_id = $1 and b.bucket_key = $2
for update skip locked
