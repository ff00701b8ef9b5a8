-- A first version, unless the zone is there. Not an upsert, which would use up a number each time.
insert into zone_master (
    name, description, algorithm, rate, window_us, burst, rate_gcd, slots, calendar, time_zone, soft_rate, reserve,
    mode, count_blocked, ban_after, ban_within_us, ban_for_us, ban_factor, ban_max_us, ban_from, on_outage,
    running_buckets, durability, blocked_rows,
    share, refresh_us, safe_capacity, guaranteed, backlog, max_takes, local_us, clock, version, created_at, updated_at
)
select $1, coalesce($2, ''), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, 1, $33, $33
where not exists (select from zone_master z where z.name = $1)
on conflict (name) do nothing
