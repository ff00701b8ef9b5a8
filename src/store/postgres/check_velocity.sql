-- The wait for locks is told first, for this transaction; null leaves it as it is.
select v.blocked = 1 as blocked, v.id, v.zone_id, v.bucket_key, v.rate, v.window_seconds
from (select set_config('lock_timeout', coalesce($3::int::text, current_setting('lock_timeout')), true) as told) w
cross join lateral check_velocity($1, case when w.told is not null then $2 end) v
