-- zone_find: the number of a zone and the policy in force, by the zone's name.
--
-- Arguments  p_name  the name
-- Result     one row: its id, the version in force and its policy, see zone_master; none when there is no such zone
-- Locks      nothing
create function zone_find(p_name text)
returns table (
    id int, version int, algorithm text, rate bigint, window_us bigint, burst bigint, slots int, calendar text,
    time_zone text, soft_rate bigint, reserve bigint, mode text, count_blocked boolean, ban_after int,
    ban_within_us bigint, ban_for_us bigint, ban_factor int, ban_max_us bigint, ban_from text, on_outage text,
    running_buckets text, durability text, blocked_rows text,
    share text, refresh_us bigint, safe_capacity bigint, guaranteed bigint, backlog bigint, max_takes int, local_us bigint,
    clock text
)
language sql
stable
security definer
set search_path from current
as $$
    select z.id, z.version, z.algorithm, z.rate, z.window_us, z.burst, z.slots, z.calendar, z.time_zone, z.soft_rate,
        z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us, z.ban_factor, z.ban_max_us, z.ban_from,
        z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
        z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.backlog, z.max_takes, z.local_us, z.clock
    from zone_master z
    where z.name = p_name
$$;
