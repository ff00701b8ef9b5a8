-- The holds of a bucket, and the seq of its head at that time.
select b.seq as head_seq, h.seq, h.charged_at, h.amount, h.ends_at, h.member
from zone_bucket_lock b
left join zone_hold h on h.zone_id = b.zone_id and h.bucket_key = b.bucket_key
where b.zone_id = ?1 and b.bucket_key = ?2
order by h.seq
