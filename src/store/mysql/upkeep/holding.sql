-- Locks the next buckets that hold anything, but for those that others hold: they come the next time. The zone, the key
-- before.
select b.bucket_key
from zone_bucket_lock b force index (primary)
where b.zone_id = ? and b.bucket_key > ? and b.holding
order by b.bucket_key
limit 50
for update skip locked
