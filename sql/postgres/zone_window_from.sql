-- zone_window_from: the first time that counts at a time. Not called from outside.
--
-- Arguments  p_algorithm, p_window_us  the policy
--            p_at                      the time
-- Result     the first microsecond of the window
-- Locks      nothing
create function zone_window_from(p_algorithm text, p_window_us bigint, p_at timestamptz)
returns timestamptz
language sql
stable
as $$
    select zone_time(
        case p_algorithm
            when 'fixed-window' then zone_us(p_at) - ((zone_us(p_at) % p_window_us) + p_window_us) % p_window_us
            else zone_us(p_at) - p_window_us + 1
        end
    )
$$;
