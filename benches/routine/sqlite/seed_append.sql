insert into seed_txn (zone_id, bucket_key, blocked)
select z.id, ?2, count(t.id) >= z.rate
from seed_zone z
left join seed_txn t on t.zone_id = z.id and t.bucket_key = ?2 and t.blocked = 0
    and t.created_at >= unixepoch() - z."window"
where z.id = ?1
returning blocked, id
