-- The versions of each zone from a given one on; without one, the one in force. ?1 lists [zone_id, version].
select v.zone_id, v.version, v.algorithm, v.rate, v.window_us, v.burst, v.slots, v.calendar, v.time_zone, v.soft_rate,
    v.reserve, v.mode, v.count_blocked, v.ban_after, v.ban_within_us, v.ban_for_us, v.ban_factor, v.ban_max_us,
    v.ban_from, v.on_outage, v.running_buckets, v.durability, v.blocked_rows,
    v.share, v.refresh_us, v.safe_capacity, v.guaranteed, v.backlog, v.max_takes, v.local_us, v.clock, v.changed_at
from jsonb_each(?1) j
cross join zone_version v
where v.zone_id = j.value ->> 0
    and v.version >= coalesce(j.value ->> 1, (select z.version from zone_master z where z.id = j.value ->> 0))
order by v.version
