-- Buckets of a zone that hold nothing any more. ?1 the zone.
update zone_bucket_lock
set holding = 0
where zone_id = ?1
    and holding
    and not exists (
        select 1
        from zone_hold h
        where h.zone_id = zone_bucket_lock.zone_id and h.bucket_key = zone_bucket_lock.bucket_key
    )
