-- The shapes that settlements taught. ?1 lists [zone_id, bucket_key, shapes].
update zone_bucket_lock
set shapes = j.value ->> 2
from jsonb_each(?1) j
where zone_id = j.value ->> 0 and bucket_key = j.value ->> 1
