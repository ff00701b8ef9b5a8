-- The head of a bucket of which there is nothing. ?1 the zone, ?2 the key, ?3 its salt, ?4 its hash, ?5 who has it, null for this database.
insert into zone_bucket_lock (zone_id, bucket_key, seq, spent_total, strikes, salt, row_hash, moved_to)
select z.id, ?2, 0, 0, 0, ?3, ?4, ?5
from zone_master z
where z.id = ?1
