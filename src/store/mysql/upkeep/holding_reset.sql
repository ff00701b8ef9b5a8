-- A bucket that holds nothing any more. The zone and the bucket.
update zone_bucket_lock b
set b.holding = false
where b.zone_id = ?
    and b.bucket_key = ?
    and not exists (
        select 1
        from zone_hold h
        where h.zone_id = b.zone_id and h.bucket_key = b.bucket_key
    )
