-- How many rows of idle buckets there are. ?1 the zone, ?2 since when they were quiet.
select count(*)
from zone_bucket_lock b
where b.zone_id = ?1
    and b.last_at < ?2
    and b.banned_until is null
    and b.bans = 0
    and b.ban_strikes = 0
    and b.carried is null
    and b.override_seq is null
    and not b.holding
    and b.moved_to is null
