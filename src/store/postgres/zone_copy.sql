-- A zone at a version as another database has it, in place of the one before.
insert into zone_master (
    id, name, description, algorithm, rate, window_us, burst, rate_gcd, slots, calendar, time_zone, soft_rate,
    reserve, mode, count_blocked, ban_after, ban_within_us, ban_for_us, ban_factor, ban_max_us, ban_from, on_outage,
    running_buckets, durability, blocked_rows,
    share, refresh_us, safe_capacity, guaranteed, backlog, max_takes, local_us, clock, version, created_at, updated_at
)
values (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36
)
on conflict (name) do update
set description = excluded.description,
    algorithm = excluded.algorithm,
    rate = excluded.rate,
    window_us = excluded.window_us,
    burst = excluded.burst,
    rate_gcd = excluded.rate_gcd,
    slots = excluded.slots,
    calendar = excluded.calendar,
    time_zone = excluded.time_zone,
    soft_rate = excluded.soft_rate,
    reserve = excluded.reserve,
    mode = excluded.mode,
    count_blocked = excluded.count_blocked,
    ban_after = excluded.ban_after,
    ban_within_us = excluded.ban_within_us,
    ban_for_us = excluded.ban_for_us,
    ban_factor = excluded.ban_factor,
    ban_max_us = excluded.ban_max_us,
    ban_from = excluded.ban_from,
    on_outage = excluded.on_outage,
    running_buckets = excluded.running_buckets,
    durability = excluded.durability,
    blocked_rows = excluded.blocked_rows,
    share = excluded.share,
    refresh_us = excluded.refresh_us,
    safe_capacity = excluded.safe_capacity,
    guaranteed = excluded.guaranteed,
    backlog = excluded.backlog,
    max_takes = excluded.max_takes,
    local_us = excluded.local_us,
    clock = excluded.clock,
    version = excluded.version,
    updated_at = excluded.updated_at
