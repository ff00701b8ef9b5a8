-- From the version that decided the bucket's last row to the one in force.
select v.version, v.algorithm, v.rate, v.window_us, v.burst, v.changed_at
from zone_version v
where v.zone_id = ?1
    and v.version >= coalesce(?2, (select z.version from zone_master z where z.id = ?1))
order by v.version
