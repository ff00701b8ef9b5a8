insert into zone_version (
    zone_id, version, description, algorithm, rate, window_us, burst, rate_gcd, durability, blocked_rows, changed_at,
    changed_by
)
select z.id, z.version, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.durability,
    z.blocked_rows, z.updated_at, $2
from zone_master z
where z.id = $1
on conflict (zone_id, version) do nothing
