-- The heads that removed rows left behind, as in rows.sql. $1 the zone, $2 the key, $3 what stands in its place.
insert into zone_txn_dropped (
    seq, spent_total, level, strikes, created_at, zone_id, zone_version, bucket_key, salt, row_hash
)
select d.seq, d.spent_total, d.level, d.strikes, d.created_at, d.zone_id, d.zone_version, $3, null, d.row_hash
from zone_txn_dropped d
where d.zone_id = $1 and d.bucket_key = $2
