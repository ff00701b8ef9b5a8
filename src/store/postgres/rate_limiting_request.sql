-- The wait for locks is told first, for this transaction; null leaves it as it is.
select rate_limiting_request(case when w.told is not null then $1 end, $2, $3)::bigint as rate_limiting_request
from (select set_config('lock_timeout', coalesce($4::int::text, current_setting('lock_timeout')), true) as told) w
