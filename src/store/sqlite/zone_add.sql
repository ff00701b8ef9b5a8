insert into zone_master (
    name, description, algorithm, rate, window_us, burst, rate_gcd, durability, blocked_rows, version,
    created_at, updated_at
)
values (?1, coalesce(?2, ''), ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, ?10, ?10)
on conflict (name) do nothing
