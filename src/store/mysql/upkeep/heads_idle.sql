-- Locks the next rows of idle buckets that say no more than the last row of their ledger, and skips what others hold:
-- it is not idle. The zone, the key before, since when they were quiet. The shapes that settlements taught are of use
-- for 15 minutes.
select b.bucket_key
from zone_bucket_lock b force index (primary)
where b.zone_id = ?
    and b.bucket_key > ?
    and date_add(b.last_at, interval if(b.shapes is null, 0, 15) minute) < ?
    and b.banned_until is null
    and b.bans = 0
    and b.ban_strikes = 0
    and b.carried is null
    and b.override_seq is null
    and not b.holding
    and b.moved_to is null
    and not exists (
        select 1
        from zone_queue q
        where q.zone_id = b.zone_id and q.bucket_key = b.bucket_key and (q.waiting > 0 or q.away > 0)
    )
order by b.bucket_key
limit 100
for update skip locked
