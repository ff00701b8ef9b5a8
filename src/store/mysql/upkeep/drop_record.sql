-- The head that a row leaves behind when it goes with all before it: the zone, the bucket, its time and its
-- seq.
insert into zone_txn_dropped (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select t.zone_id, t.bucket_key, t.seq, t.spent_total, t.level, t.strikes, t.created_at, t.zone_version,
    (
        select f.salt
        from zone_txn f force index (zone_txn_bucket_uq)
        where f.zone_id = t.zone_id and f.bucket_key = t.bucket_key and f.sealed
        order by f.created_at, f.seq
        limit 1
    ),
    t.row_hash
from zone_txn t
where t.zone_id = ? and t.bucket_key = ? and t.created_at = ? and t.seq = ? and t.sealed
on duplicate key update
    spent_total = values(spent_total),
    level = values(level),
    strikes = values(strikes),
    created_at = values(created_at),
    zone_version = values(zone_version),
    row_hash = values(row_hash),
    seq = values(seq)
