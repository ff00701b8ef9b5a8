select b.seq, b.last_at, b.spent_total, b.level, b.zone_version
from zone_bucket_lock b
where b.zone_id = ?1 and b.bucket_key = ?2
