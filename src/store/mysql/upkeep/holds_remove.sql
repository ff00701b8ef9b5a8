-- Removes what has ended in a bucket and is in no window any more. A level may not have had it back yet: then it stays
-- until the bucket's next row. The zone, the bucket, and twice from when on charges are needed.
delete h
from zone_hold h
join zone_bucket_lock b on b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
join zone_master z on z.id = h.zone_id
where h.zone_id = ?
    and h.bucket_key = ?
    and h.charged_at < ?
    and h.ends_at < ?
    and (
        h.ends_at <= b.last_at
        or (
            b.zone_version = z.version
            and z.algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue')
        )
    )
