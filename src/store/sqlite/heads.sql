-- The heads of those buckets that have one. ?1 lists [zone_id, bucket_key].
select j.key as n, b.seq, b.last_at, b.spent_total, b.level, b.zone_version
from jsonb_each(?1) j
cross join zone_bucket_lock b
where b.zone_id = j.value ->> 0 and b.bucket_key = j.value ->> 1
