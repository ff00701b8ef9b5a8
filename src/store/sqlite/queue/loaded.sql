-- The load of a queue, and the seq of its head at that time.
select b.seq as head_seq, q.waiting, q.away, q.settled_at
from zone_bucket_lock b
left join zone_queue q on q.zone_id = b.zone_id and q.bucket_key = b.bucket_key
where b.zone_id = ?1 and b.bucket_key = ?2
