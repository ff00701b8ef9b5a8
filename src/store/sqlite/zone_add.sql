insert into zone_master (
    name, description, algorithm, rate, window_us, burst, rate_gcd, version, created_at, updated_at
)
values (?1, coalesce(?2, ''), ?3, ?4, ?5, ?6, ?7, 1, ?8, ?8)
on conflict (name) do nothing
