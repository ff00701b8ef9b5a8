-- Has anything happened in a bucket? $1 the zone, $2 the key.
select exists (
        select
        from zone_bucket_lock b
        where b.zone_id = $1 and b.bucket_key = $2
    )
    or exists (
        select
        from zone_txn t
        where t.zone_id = $1 and t.bucket_key = $2
    )
    or exists (
        select
        from zone_txn_dropped d
        where d.zone_id = $1 and d.bucket_key = $2
    )
