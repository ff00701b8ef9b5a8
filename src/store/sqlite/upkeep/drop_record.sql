-- The heads that the oldest rows of a zone leave behind when they go: of each bucket the last of them. ?1 the zone, ?2
-- the time before which they are, ?3 how many.
insert into zone_txn_dropped (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select t.zone_id, t.bucket_key, t.seq, t.spent_total, t.level, t.strikes, t.created_at, t.zone_version,
    (
        select f.salt
        from zone_txn f
        where f.zone_id = t.zone_id and f.bucket_key = t.bucket_key
        order by f.created_at, f.seq
        limit 1
    ),
    t.row_hash
from (
    select max(o.id) as id
    from (
        select t.id, t.bucket_key
        from zone_txn t
        where t.zone_id = ?1 and t.created_at < ?2
        order by t.created_at, t.id
        limit ?3
    ) o
    group by o.bucket_key
) l
join zone_txn t on t.id = l.id
where true
on conflict (zone_id, bucket_key) do update
set seq = excluded.seq,
    spent_total = excluded.spent_total,
    level = excluded.level,
    strikes = excluded.strikes,
    created_at = excluded.created_at,
    zone_version = excluded.zone_version,
    row_hash = excluded.row_hash
