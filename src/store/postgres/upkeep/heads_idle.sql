-- The number of rows of idle buckets that heads_remove.sql would remove. $1 the zone, $2 since when they were quiet.
-- The shapes that settlements taught are of use for 15 minutes.
select count(*)
from zone_bucket_lock b
where b.zone_id = $1
    and (b.last_at < $2 - interval '15 minutes' or b.shapes is null and b.last_at < $2)
    and b.banned_until is null
    and b.bans = 0
    and b.ban_strikes = 0
    and b.carried is null
    and b.override_seq is null
    and not b.holding
    and b.moved_to is null
    and not exists (
        select
        from zone_queue q
        where q.zone_id = b.zone_id and q.bucket_key = b.bucket_key and (q.waiting > 0 or q.away > 0)
    )
