-- zone_window_period: the period of a fixed window that a time is in. Not called from outside.
--
-- Periods begin at multiples of the window since 1970, or by a calendar: at the first moment at which the clock of the
-- time zone shows the beginning. The clock stands in zone_calendar.
--
-- Arguments  p_window  the policy
--            p_at_us   the time
-- Result     the first microsecond of the period, and of the next one
-- Locks      nothing
create function zone_window_period(p_window zone_window, p_at_us bigint, out o_start_us bigint, out o_end_us bigint)
language plpgsql
as $$
declare
    c_day_us   constant bigint := 86400000000;
    v_unit_us  bigint;
    v_shown_us bigint;
    v_start    timestamp;
begin
    if p_window.calendar is null then
        o_start_us := p_at_us - ((p_at_us % p_window.window_us) + p_window.window_us) % p_window.window_us;
        o_end_us := o_start_us + p_window.window_us;
        return;
    end if;
    select greatest(p_at_us + c.offset_us, c.shown_us)
    into v_shown_us
    from zone_calendar c
    where c.zone_id = p_window.zone_id and c.version = p_window.version and c.starts_us <= p_at_us
    order by c.starts_us desc
    limit 1;
    if p_window.calendar = 'month' then
        -- An offset, not a name: since PostgreSQL 18 a session's time zone may call itself UTC and be another one.
        v_start := date_trunc('month', zone_time(v_shown_us) at time zone interval '0');
        o_start_us := zone_us(v_start at time zone interval '0');
        o_end_us := zone_us((v_start + interval '1 month') at time zone interval '0');
    else
        v_unit_us := case p_window.calendar when 'minute' then 60000000 when 'hour' then 3600000000 else c_day_us end;
        o_start_us := v_shown_us - ((v_shown_us % v_unit_us) + v_unit_us) % v_unit_us;
        o_end_us := o_start_us + v_unit_us;
    end if;
    -- No clock is two days off, so the spans that may show it begin with the one that is in force two days before.
    select greatest(c.starts_us, o_start_us - c.offset_us)
    into o_start_us
    from zone_calendar c
    where c.zone_id = p_window.zone_id and c.version = p_window.version
        and c.starts_us >= (
            select max(f.starts_us)
            from zone_calendar f
            where f.zone_id = p_window.zone_id and f.version = p_window.version
                and f.starts_us <= o_start_us - 2 * c_day_us
        )
        and greatest(c.starts_us, o_start_us - c.offset_us) < c.ends_us
    order by c.starts_us
    limit 1;
    select greatest(c.starts_us, o_end_us - c.offset_us)
    into o_end_us
    from zone_calendar c
    where c.zone_id = p_window.zone_id and c.version = p_window.version
        and c.starts_us >= (
            select max(f.starts_us)
            from zone_calendar f
            where f.zone_id = p_window.zone_id and f.version = p_window.version
                and f.starts_us <= o_end_us - 2 * c_day_us
        )
        and greatest(c.starts_us, o_end_us - c.offset_us) < c.ends_us
    order by c.starts_us
    limit 1;
end
$$;
