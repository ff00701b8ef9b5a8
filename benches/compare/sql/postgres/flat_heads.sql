-- The heads of buckets that flat_rows.sql has filled, from their last rows.
insert into zone_bucket_lock (zone_id, bucket_key, seq, last_at, spent_total, zone_version, salt, row_hash)
select t.zone_id, t.bucket_key, t.seq, t.created_at, t.spent_total, t.zone_version, uuid_send(gen_random_uuid()), t.row_hash
from zone_txn t
where t.zone_id = $1 and t.bucket_key >= $2 and t.bucket_key < $2 || '~' and t.seq = $3
