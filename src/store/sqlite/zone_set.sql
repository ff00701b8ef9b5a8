update zone_master as z
set description = n.description,
    algorithm = n.algorithm,
    rate = n.rate,
    window_us = n.window_us,
    burst = n.burst,
    rate_gcd = n.rate_gcd,
    durability = n.durability,
    blocked_rows = n.blocked_rows,
    version = z.version + n.changed,
    updated_at = case when n.changed then max(?10, z.updated_at) else z.updated_at end
from (
    select o.id, coalesce(?2, o.description) as description, ?3 as algorithm, ?4 as rate, ?5 as window_us,
        ?6 as burst, ?7 as rate_gcd, ?8 as durability, ?9 as blocked_rows,
        o.description <> coalesce(?2, o.description) or o.algorithm <> ?3 or o.rate <> ?4 or o.window_us <> ?5
            or o.burst is not ?6 or o.durability <> ?8 or o.blocked_rows <> ?9 as changed
    from zone_master o
    where o.name = ?1
) n
where z.id = n.id
returning id, name, description, algorithm, rate, window_us, burst, durability, blocked_rows, version, created_at,
    updated_at
