-- The versions of each zone from a given one on; without one, the one in force. ?1 lists [zone_id, version].
select v.zone_id, v.version, v.algorithm, v.rate, v.window_us, v.burst, v.durability, v.blocked_rows, v.changed_at
from jsonb_each(?1) j
cross join zone_version v
where v.zone_id = j.value ->> 0
    and v.version >= coalesce(j.value ->> 1, (select z.version from zone_master z where z.id = j.value ->> 0))
order by v.version
