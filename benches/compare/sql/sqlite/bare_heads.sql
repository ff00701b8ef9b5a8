update zone_bucket_lock
set seq = w.n, last_at = ?3, spent_total = w.n, zone_version = 1
from (select value ->> 'key' as bucket_key, value ->> 'n' as n from json_each(?2)) w
where zone_bucket_lock.zone_id = ?1 and zone_bucket_lock.bucket_key = w.bucket_key
