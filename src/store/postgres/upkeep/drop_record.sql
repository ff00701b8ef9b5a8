-- The heads that the rows of the next buckets before a time leave behind. $1 the zone and $2 the key before, $3 the
-- time, $4 the zone and $5 the key of the last of these buckets.
insert into zone_txn_dropped as d (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select t.zone_id, t.bucket_key, t.seq, t.spent_total, t.level, t.strikes, t.created_at, t.zone_version, n.salt, t.row_hash
from (
    -- Of a bucket only the first row has the salt.
    select t.zone_id, t.bucket_key, max(t.created_at) as created_at, max(t.seq) as seq,
        (array_agg(t.salt) filter (where t.salt is not null))[1] as salt
    from zone_txn t
    where (t.zone_id, t.bucket_key) > ($1, $2 collate "C")
        and (t.zone_id, t.bucket_key) <= ($4, $5 collate "C")
        and t.created_at < $3
    group by t.zone_id, t.bucket_key
) n
join zone_txn t on t.zone_id = n.zone_id and t.bucket_key = n.bucket_key and t.created_at = n.created_at
    and t.seq = n.seq
on conflict (zone_id, bucket_key) do update
set seq = excluded.seq,
    spent_total = excluded.spent_total,
    level = excluded.level,
    strikes = excluded.strikes,
    created_at = excluded.created_at,
    zone_version = excluded.zone_version,
    row_hash = excluded.row_hash
where d.seq < excluded.seq
