-- The next 1000 buckets of a zone, found from key to key by the index zone_txn_bucket, each with its last row up to a time.
with recursive bucket (bucket_key, n) as (
    select (select min(t.bucket_key) from zone_txn t where t.zone_id = ?1 and t.bucket_key > ?2), 1
    union all
    select (select min(t.bucket_key) from zone_txn t where t.zone_id = ?1 and t.bucket_key > b.bucket_key), b.n + 1
    from bucket b
    where b.bucket_key is not null and b.n < 1000
)
select b.bucket_key, h.seq, h.row_hash,
    coalesce(
        (
            select t.salt
            from zone_txn t
            where t.zone_id = ?1 and t.bucket_key = b.bucket_key
            order by t.created_at, t.seq
            limit 1
        ),
        l.salt
    ) as salt
from bucket b
left join zone_txn h on h.id = (
    select t.id
    from zone_txn t
    where t.zone_id = ?1 and t.bucket_key = b.bucket_key and t.created_at <= ?3
    order by t.created_at desc, t.seq desc
    limit 1
)
left join zone_bucket_lock l on l.zone_id = ?1 and l.bucket_key = b.bucket_key
where b.bucket_key is not null
order by b.bucket_key
