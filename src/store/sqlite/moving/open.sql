-- The head of a bucket whose row was removed, as its ledger left it. ?1 the zone, ?2 the key.
insert into zone_bucket_lock (
    zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes, salt, row_hash
)
select l.zone_id, l.bucket_key, l.seq, l.created_at, l.spent_total, l.level, l.zone_version, l.strikes,
    coalesce(
        (
            select d.salt
            from zone_txn_dropped d
            where d.zone_id = ?1 and d.bucket_key = ?2
        ),
        (
            select f.salt
            from zone_txn f
            where f.zone_id = ?1 and f.bucket_key = ?2
            order by f.created_at, f.seq
            limit 1
        )
    ),
    l.row_hash
from (
    select t.zone_id, t.bucket_key, t.seq, t.created_at, t.spent_total, t.level, t.zone_version, t.strikes, t.row_hash
    from zone_txn t
    where t.zone_id = ?1 and t.bucket_key = ?2
    union all
    select d.zone_id, d.bucket_key, d.seq, d.created_at, d.spent_total, d.level, d.zone_version, d.strikes, d.row_hash
    from zone_txn_dropped d
    where d.zone_id = ?1 and d.bucket_key = ?2
) l
where not exists (
    select 1
    from zone_bucket_lock b
    where b.zone_id = ?1 and b.bucket_key = ?2
)
order by l.seq desc
limit 1
