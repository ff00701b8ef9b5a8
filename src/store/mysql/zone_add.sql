-- A first version, unless the zone is there. Not an upsert, which would use up a number each time.
insert into zone_master (
    name, description, algorithm, rate, window_us, burst, rate_gcd, durability, blocked_rows, version,
    created_at, updated_at
)
select n.name, coalesce(n.description, ''), n.algorithm, n.rate, n.window_us, n.burst, n.rate_gcd, n.durability,
    n.blocked_rows, 1,
    utc_timestamp(6), utc_timestamp(6)
from (
    select cast(? as char character set utf8mb4) as name, ? as description, ? as algorithm, ? as rate,
        ? as window_us, ? as burst, ? as rate_gcd, ? as durability, ? as blocked_rows
) n
where not exists (select 1 from zone_master z where z.name = n.name collate utf8mb4_bin)
on duplicate key update id = zone_master.id
