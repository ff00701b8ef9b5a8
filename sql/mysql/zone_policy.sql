-- zone_policy: what a version of a zone counts by, in a bucket with an override or without one; not called from
-- outside.
--
-- Arguments  p_zone_id       the zone
--            p_bucket_key    the bucket
--            p_version       the version
--            p_override_seq  the bucket's override; null without one
--            o_algorithm     how it counts
--            o_window_us     the window
--            o_limit         the most that it admits
--            o_per_us        what a microsecond adds to a level
--            o_per_token     a token of a level
--            o_slots         slots of a sliding counter
--            o_calendar      the period of a fixed window by the calendar
-- Locks      the version and the override, shared, until the transaction ends: a joined caller's snapshot may be
--            older
-- Errors     TG008 (31008) the algorithm is not known
drop procedure if exists zone_policy;
create procedure zone_policy(
    in  p_zone_id      int,
    in  p_bucket_key   varbinary(255),
    in  p_version      int,
    in  p_override_seq bigint,
    out o_algorithm    varchar(20) character set ascii,
    out o_window_us    bigint,
    out o_limit        bigint,
    out o_per_us       bigint,
    out o_per_token    bigint,
    out o_slots        int,
    out o_calendar     varchar(20) character set ascii
)
sql security definer
begin
    declare v_rate      bigint;
    declare v_window_us bigint;
    declare v_burst     bigint;
    declare v_gcd       bigint;
    select v.algorithm, v.rate, v.window_us, v.burst, v.rate_gcd, v.slots, v.calendar
    into o_algorithm, v_rate, o_window_us, v_burst, v_gcd, o_slots, o_calendar
    from zone_version v
    where v.zone_id = p_zone_id and v.version = p_version
    lock in share mode;
    if o_algorithm not in (
        'sliding-log', 'fixed-window', 'sliding-counter', 'token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform',
        'distinct', 'concurrency', 'capacity', 'queue'
    ) then
        call zone_error('algorithm', o_algorithm, null, null);
    end if;
    set v_window_us = o_window_us;
    if p_override_seq is not null then
        select coalesce(o.rate, v_rate), coalesce(o.window_us, v_window_us), if(o.rate is null, v_burst, o.burst),
            coalesce(o.rate_gcd, v_gcd)
        into v_rate, v_window_us, v_burst, v_gcd
        from zone_override o
        where o.zone_id = p_zone_id and o.bucket_key = p_bucket_key and o.seq = p_override_seq
        lock in share mode;
        -- A calendar's periods, and a window cut into slots, stay what they are.
        if o_calendar is null and o_slots is null then
            set o_window_us = v_window_us;
        end if;
        if o_algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue') then
            set v_burst = null;
        end if;
    end if;
    set o_limit = if(o_algorithm = 'uniform', 1, coalesce(v_burst, v_rate));
    set o_per_us = v_rate div v_gcd;
    set o_per_token = v_window_us div v_gcd;
end;
