-- Removes what has ended in the buckets of a zone and is in no window any more. A level may not have had it back yet:
-- then it stays until the bucket's next row. ?1 the zone, ?2 from when on charges are needed, ?3 how many at most.
delete from zone_hold
where zone_id = ?1
    and (bucket_key, seq) in (
        select h.bucket_key, h.seq
        from zone_hold h
        join zone_bucket_lock b on b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
        join zone_master z on z.id = h.zone_id
        where h.zone_id = ?1
            and h.charged_at < ?2
            and h.ends_at < ?2
            and (
                h.ends_at <= b.last_at
                or (
                    b.zone_version = z.version
                    and z.algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue')
                )
            )
        limit ?3
    )
