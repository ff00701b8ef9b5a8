-- check_velocity: may one more transaction of this bucket pass?
--
-- A check of cost 1 under a transaction id made for it. Joins the caller's transaction.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes without control characters
-- Result     one row: blocked (0 or 1), id of the ledger row, the zone, the bucket, the rate, and the window
--            in seconds, rounded up
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_check
create function check_velocity(p_zone_id int, p_bucket_key text)
returns table (blocked int, id bigint, zone_id int, bucket_key text, rate bigint, window_seconds bigint)
language sql
volatile
security definer
set search_path from current
as $$
    select d.blocked::int, d.id, d.zone_id, d.bucket_key, v.rate, (v.window_us + 999999) / 1000000
    from zone_check(p_zone_id, p_bucket_key) d
    join zone_version v on v.zone_id = d.zone_id and v.version = d.zone_version
$$;
