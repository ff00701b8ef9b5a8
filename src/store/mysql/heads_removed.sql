select exists (select 1 from zone_bucket_removed_view r where r.zone_id = ?) as removed
