-- The next rows of a bucket, with what is personal in them. ?1 the zone, ?2 the key.
select t.id, t.member, t.note, t.actor
from zone_txn t
where t.zone_id = ?1 and t.bucket_key = ?2
limit 1000
