-- The next 1000 buckets of a zone that have a row up to a time, by the index zone_txn_bucket_uq, each with its last such row.
select b.bucket_key, h.seq, h.row_hash,
    coalesce(
        (
            select t.salt
            from zone_txn_view t
            where t.zone_id = h.zone_id and t.bucket_key = b.bucket_key
            order by t.created_at, t.seq
            limit 1
        ),
        l.salt
    ) as salt
from (
    select t.bucket_key, max(t.created_at) as last_at
    from zone_txn_by_bucket_view t
    where t.zone_id = ? and t.bucket_key > cast(? as binary) and t.created_at <= ?
    group by t.bucket_key
    order by t.bucket_key
    limit 1000
) b
join zone_txn_view h on h.zone_id = ? and h.bucket_key = b.bucket_key and h.created_at = b.last_at
left join zone_bucket_lock_view l on l.zone_id = h.zone_id and l.bucket_key = b.bucket_key
where not exists (
    select 1
    from zone_txn_view n
    where n.zone_id = h.zone_id and n.bucket_key = h.bucket_key and n.created_at = h.created_at and n.seq > h.seq
)
order by b.bucket_key
