-- A zone at its first version, as another database has it. Not an upsert: for that MariaDB asks for the right to change the
-- number of a zone.
insert into zone_master (
    id, name, description, algorithm, rate, window_us, burst, rate_gcd, slots, calendar, time_zone, soft_rate,
    reserve, mode, count_blocked, ban_after, ban_within_us, ban_for_us, ban_factor, ban_max_us, ban_from, on_outage,
    running_buckets, durability, blocked_rows,
    share, refresh_us, safe_capacity, guaranteed, backlog, max_takes, local_us, clock, version, created_at, updated_at
)
values (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
