select z.id, z.name, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.slots, z.calendar,
    z.time_zone, z.soft_rate, z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us,
    z.ban_factor, z.ban_max_us, z.ban_from, z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
    z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.backlog, z.max_takes, z.local_us, z.clock, z.version,
    z.created_at, z.updated_at
from zone_master z
where z.name = $1
for no key update
