-- Removes the row of a bucket, which is locked, when its ledger can give it back. The zone and the bucket.
delete b
from zone_bucket_lock b
where b.zone_id = ?
    and b.bucket_key = ?
    and (
        exists (
            select 1
            from zone_txn t
            where t.zone_id = b.zone_id and t.bucket_key = b.bucket_key and t.created_at = b.last_at and t.seq = b.seq
                and t.sealed
        )
        or exists (
            select 1
            from zone_txn_dropped d
            where d.zone_id = b.zone_id and d.bucket_key = b.bucket_key and d.seq = b.seq
        )
    )
