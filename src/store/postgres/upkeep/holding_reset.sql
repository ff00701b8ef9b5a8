-- Buckets that hold nothing any more. $1 the zone, $2 the buckets.
update zone_bucket_lock b
set holding = false
where b.zone_id = $1
    and b.bucket_key = any($2)
    and not exists (
        select
        from zone_hold h
        where h.zone_id = b.zone_id and h.bucket_key = b.bucket_key
    )
