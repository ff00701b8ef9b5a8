-- zone_calendar_period: the period of a calendar that a time is in; not called from outside.
--
-- A period begins at the first instant at which the zone's clock shows its beginning, or has passed it.
--
-- Arguments  p_zone_id   the zone
--            p_version   the version by whose clock it is counted
--            p_calendar  the period: minute, hour, day or month
--            p_at_us     the time, in microseconds since 1970
--            o_from_us   the period's first microsecond
--            o_to_us     that of the next period
-- Locks      nothing
-- Errors     TG007 (31007) the caller's snapshot is older than the version
drop procedure if exists zone_calendar_period;
create procedure zone_calendar_period(
    in  p_zone_id  int,
    in  p_version  int,
    in  p_calendar varchar(20) character set ascii,
    in  p_at_us    bigint,
    out o_from_us  bigint,
    out o_to_us    bigint
)
sql security definer
begin
    declare v_epoch    datetime default timestamp'1970-01-01 00:00:00';
    declare v_day_us   bigint default 86400000000;
    declare v_shown_us bigint;
    declare v_start_us bigint;
    declare v_next_us  bigint;
    declare v_month    datetime;
    declare v_span_us  bigint;
    declare continue handler for not found set v_shown_us = null;
    select greatest(p_at_us + c.offset_us, c.shown_us)
    into v_shown_us
    from zone_calendar c
    where c.zone_id = p_zone_id and c.version = p_version and c.starts_us <= p_at_us
    order by c.starts_us desc
    limit 1;
    if v_shown_us is null then
        call zone_error('old snapshot', null, null, null);
    end if;
    if p_calendar = 'month' then
        set v_month = date_add(v_epoch, interval v_shown_us div 1000000 second);
        set v_month = date_sub(timestamp(date(v_month)), interval dayofmonth(v_month) - 1 day);
        set v_start_us = timestampdiff(second, v_epoch, v_month) * 1000000;
        set v_next_us = timestampdiff(second, v_epoch, date_add(v_month, interval 1 month)) * 1000000;
    else
        set v_span_us = case p_calendar when 'minute' then 60000000 when 'hour' then 3600000000 else v_day_us end;
        set v_start_us = v_shown_us - v_shown_us mod v_span_us;
        set v_next_us = v_start_us + v_span_us;
    end if;
    -- No clock shows another time than UTC by two days, so the search begins so much before.
    select c.starts_us
    into v_span_us
    from zone_calendar c
    where c.zone_id = p_zone_id and c.version = p_version and c.starts_us <= v_start_us - 2 * v_day_us
    order by c.starts_us desc
    limit 1;
    select greatest(c.starts_us, v_start_us - c.offset_us)
    into o_from_us
    from zone_calendar c
    where c.zone_id = p_zone_id and c.version = p_version and c.starts_us >= v_span_us
        and greatest(c.starts_us, v_start_us - c.offset_us) < c.ends_us
    order by c.starts_us
    limit 1;
    select greatest(c.starts_us, v_next_us - c.offset_us)
    into o_to_us
    from zone_calendar c
    where c.zone_id = p_zone_id and c.version = p_version and c.starts_us >= v_span_us
        and greatest(c.starts_us, v_next_us - c.offset_us) < c.ends_us
    order by c.starts_us
    limit 1;
end;
