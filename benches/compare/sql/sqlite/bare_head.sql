update zone_bucket_lock
set seq = ?3, last_at = ?4, spent_total = ?3, zone_version = 1
where zone_id = ?1 and bucket_key = ?2
