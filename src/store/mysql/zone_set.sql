update zone_master z
set z.description = ?,
    z.algorithm = ?,
    z.rate = ?,
    z.window_us = ?,
    z.burst = ?,
    z.rate_gcd = ?,
    z.durability = ?,
    z.blocked_rows = ?,
    z.version = z.version + 1,
    z.updated_at = greatest(utc_timestamp(6), z.updated_at)
where z.id = ?
