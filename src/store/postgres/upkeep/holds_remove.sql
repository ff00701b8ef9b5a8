-- Removes what has ended in these buckets and is in no window any more. A level may not have had it back yet: then it
-- stays until the bucket's next row. $1 the zone, $2 the buckets, $3 from when on charges are needed.
delete from zone_hold h
using zone_bucket_lock b, zone_master z
where h.zone_id = $1
    and h.bucket_key = any($2)
    and h.charged_at < $3
    and h.ends_at < $3
    and b.zone_id = h.zone_id
    and b.bucket_key = h.bucket_key
    and z.id = h.zone_id
    and (
        h.ends_at <= b.last_at
        or (
            b.zone_version = z.version
            and z.algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue')
        )
    )
