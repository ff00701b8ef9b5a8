-- The last dropped row of each of the first buckets of a range of which rows were dropped.
select d.bucket_key, d.seq, d.created_at, d.spent_total, d.level, d.zone_version, d.strikes, d.salt, d.row_hash
from zone_txn_dropped_view d
where d.zone_id = ? and d.bucket_key >= cast(? as binary) and d.bucket_key <= cast(? as binary)
order by d.zone_id, d.bucket_key
limit ?
