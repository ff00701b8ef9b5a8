-- As heads_at.sql where the schema is spread over nodes, which cannot go from key to key: each gathers its own buckets in their
-- order, and reads all rows of those that it gathers.
select t.bucket_key,
    max(t.seq) filter (where t.created_at <= $3) as seq,
    (array_agg(t.row_hash order by t.seq desc) filter (where t.created_at <= $3))[1] as row_hash,
    coalesce((array_agg(t.salt order by t.seq))[1], (
        select l.salt
        from zone_bucket_lock_view l
        where l.zone_id = $1 and l.bucket_key = t.bucket_key
    )) as salt
from zone_txn_view t
where t.zone_id = $1 and t.bucket_key > $2
group by t.bucket_key
order by t.bucket_key
limit 1000
