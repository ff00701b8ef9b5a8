select v.version, v.description, v.algorithm, v.rate, v.window_us, v.burst, v.durability, v.blocked_rows, v.changed_at,
    v.changed_by
from zone_version v
where v.zone_id = ?
order by v.version
