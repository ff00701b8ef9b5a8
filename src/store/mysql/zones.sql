select z.id, z.name, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.durability, z.blocked_rows,
    z.version, z.created_at, z.updated_at
from zone_master z
order by z.name
