-- The first buckets of a range that hold something, or have items, and have no head.
select distinct s.bucket_key
from (
    select h.zone_id, h.bucket_key from zone_hold h
    union all
    select i.zone_id, i.bucket_key from zone_item i
    union all
    select q.zone_id, q.bucket_key from zone_queue q where q.waiting > 0 or q.away > 0
) s
where s.zone_id = ?1 and s.bucket_key >= ?2 and s.bucket_key <= ?3
    and not exists (
        select 1
        from zone_bucket_lock b
        where b.zone_id = s.zone_id and b.bucket_key = s.bucket_key
    )
order by s.bucket_key
limit ?4
