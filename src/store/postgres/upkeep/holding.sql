-- Locks the next buckets that hold anything, but for those that others hold: they come the next time.
-- $1 the zone, $2 the key before.
select b.bucket_key
from zone_bucket_lock b
where b.zone_id = $1 and b.bucket_key > $2 and b.holding
order by b.bucket_key
limit 200
for no key update skip locked
