select v.version, v.description, v.algorithm, v.rate, v.window_us, v.burst, v.rate_gcd, v.slots, v.calendar, v.time_zone,
    v.soft_rate, v.reserve, v.mode, v.count_blocked, v.ban_after, v.ban_within_us, v.ban_for_us, v.ban_factor,
    v.ban_max_us, v.ban_from, v.on_outage, v.running_buckets, v.durability, v.blocked_rows,
    v.share, v.refresh_us, v.safe_capacity, v.guaranteed, v.backlog, v.max_takes, v.local_us, v.clock, v.changed_at, v.changed_by,
    v.login
from zone_version v
where v.zone_id = ?1
order by v.version
