insert into zone_version (
    zone_id, version, description, algorithm, rate, window_us, burst, rate_gcd, slots, calendar, time_zone, soft_rate,
    reserve, mode, count_blocked, ban_after, ban_within_us, ban_for_us, ban_factor, ban_max_us, ban_from, on_outage,
    running_buckets, durability, blocked_rows,
    share, refresh_us, safe_capacity, guaranteed, backlog, max_takes, local_us, clock, changed_at, changed_by, row_hash
)
select z.id, z.version, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.slots, z.calendar,
    z.time_zone, z.soft_rate, z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us,
    z.ban_factor, z.ban_max_us, z.ban_from, z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
    z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.backlog, z.max_takes, z.local_us, z.clock,
    z.updated_at, ?, ?
from zone_master z
where z.id = ?
