-- A first version, unless the zone is there. Not an upsert, which would use up a number each time.
insert into zone_master (
    name, description, algorithm, rate, window_us, burst, rate_gcd, slots, calendar, time_zone, soft_rate, reserve,
    mode, count_blocked, ban_after, ban_within_us, ban_for_us, ban_factor, ban_max_us, ban_from, on_outage,
    running_buckets, durability, blocked_rows,
    share, refresh_us, safe_capacity, guaranteed, backlog, max_takes, local_us, clock, version, created_at, updated_at
)
select n.name, coalesce(n.description, ''), n.algorithm, n.rate, n.window_us, n.burst, n.rate_gcd, n.slots, n.calendar,
    n.time_zone, n.soft_rate, n.reserve, n.mode, n.count_blocked, n.ban_after, n.ban_within_us, n.ban_for_us,
    n.ban_factor, n.ban_max_us, n.ban_from, n.on_outage, n.running_buckets, n.durability, n.blocked_rows,
    n.share, n.refresh_us, n.safe_capacity, n.guaranteed, n.backlog, n.max_takes, n.local_us, n.clock, 1,
    n.now_at, n.now_at
from (
    select cast(? as char character set utf8mb4) as name, ? as description, ? as algorithm, ? as rate, ? as window_us,
        ? as burst, ? as rate_gcd, ? as slots, ? as calendar, ? as time_zone, ? as soft_rate, ? as reserve, ? as mode,
        ? as count_blocked, ? as ban_after, ? as ban_within_us, ? as ban_for_us, ? as ban_factor, ? as ban_max_us,
        ? as ban_from, ? as on_outage, ? as running_buckets, ? as durability, ? as blocked_rows,
        ? as share, ? as refresh_us, ? as safe_capacity, ? as guaranteed,
        ? as backlog, ? as max_takes, ? as local_us, ? as clock, cast(? as datetime(6)) as now_at
) n
where not exists (select 1 from zone_master z where z.name = n.name collate utf8mb4_bin)
on duplicate key update updated_at = zone_master.updated_at
