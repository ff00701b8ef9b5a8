update zone_master z
set description = n.description,
    algorithm = n.algorithm,
    rate = n.rate,
    window_us = n.window_us,
    burst = n.burst,
    rate_gcd = n.rate_gcd,
    durability = n.durability,
    blocked_rows = n.blocked_rows,
    version = z.version + n.changed::int,
    updated_at = case
        when n.changed then greatest(pg_catalog.clock_timestamp(), z.updated_at)
        else z.updated_at
    end
from (
    select o.id, coalesce($2, o.description) as description, $3::text as algorithm, $4::bigint as rate,
        $5::bigint as window_us, $6::bigint as burst, $7::bigint as rate_gcd, $8::text as durability,
        $9::text as blocked_rows,
        (o.description, o.algorithm, o.rate, o.window_us, o.burst, o.durability, o.blocked_rows)
            is distinct from (coalesce($2, o.description), $3, $4, $5, $6, $8, $9) as changed
    from zone_master o
    where o.name = $1
    for update
) n
where z.id = n.id
returning z.id, z.name, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.durability, z.blocked_rows,
    z.version, z.created_at, z.updated_at
