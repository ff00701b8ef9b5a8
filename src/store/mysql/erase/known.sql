-- Has anything happened in a bucket? The zone and the key, three times.
select exists (
        select 1
        from zone_bucket_lock b
        where b.zone_id = ? and b.bucket_key = ?
    )
    or exists (
        select 1
        from zone_txn t
        where t.zone_id = ? and t.bucket_key = ?
    )
    or exists (
        select 1
        from zone_txn_dropped d
        where d.zone_id = ? and d.bucket_key = ?
    )
