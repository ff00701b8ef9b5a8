-- zone_engine_versions: the versions of a zone from one on, for a process that decides by itself.
--
-- Arguments  p_zone_id  the zone
--            p_from     its first version that matters
-- Result     the versions, in order
-- Locks      nothing
drop procedure if exists zone_engine_versions;
create procedure zone_engine_versions(in p_zone_id int, in p_from int)
sql security definer
begin
    select v.version, v.algorithm, v.rate, v.window_us, v.burst, v.slots, v.calendar, v.time_zone, v.soft_rate, v.reserve,
        v.mode, v.count_blocked, v.ban_after, v.ban_within_us, v.ban_for_us, v.ban_factor, v.ban_max_us, v.ban_from,
        v.on_outage, v.running_buckets, v.durability, v.blocked_rows,
        v.share, v.refresh_us, v.safe_capacity, v.guaranteed, v.backlog, v.max_takes, v.local_us, v.clock, v.changed_at
    from zone_version v
    where v.zone_id = p_zone_id and v.version >= p_from
    order by v.version;
end;
