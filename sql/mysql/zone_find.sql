-- zone_find: the number of a zone and the policy in force, by the zone's name.
--
-- Arguments  p_name  the name
-- Result     one row: its id, the version in force and its policy, see zone_master; none when there is no such zone
-- Locks      nothing
drop procedure if exists zone_find;
create procedure zone_find(in p_name varbinary(4000))
sql security definer
begin
    select z.id, z.version, z.algorithm, z.rate, z.window_us, z.burst, z.slots, z.calendar, z.time_zone, z.soft_rate,
        z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us, z.ban_factor, z.ban_max_us, z.ban_from,
        z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
        z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.backlog, z.max_takes, z.local_us, z.clock
    from zone_master z
    where z.name = convert(p_name using utf8mb4) collate utf8mb4_bin
        and length(z.name) = length(p_name);
end;
