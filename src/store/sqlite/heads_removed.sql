select exists (select 1 from zone_bucket_removed r where r.zone_id = ?1) as removed
