-- The salt of a bucket, which its row has, or its first row in the ledger, or what that left behind; null without the
-- bucket. ?1 the zone, ?2 the key.
select coalesce(
        (
            select b.salt
            from zone_bucket_lock b
            where b.zone_id = ?1 and b.bucket_key = ?2
        ),
        (
            select d.salt
            from zone_txn_dropped d
            where d.zone_id = ?1 and d.bucket_key = ?2
        ),
        (
            select t.salt
            from zone_txn t
            where t.zone_id = ?1 and t.bucket_key = ?2
            order by t.created_at, t.seq
            limit 1
        )
    )
