-- zone_bring: brings a bucket of a plain zone to now, through the changes of its policy, the end of its override and the ends of
-- what it holds; not called from outside.
--
-- Without cursors: MySQL ends a routine that is killed while it opens one without an error, and its caller goes on.
--
-- Arguments  p_from, p_to  the versions that decided its last row, and that is in force
--            p_now_us      the time, in microseconds since 1970, not before p_last_us
--            p_override_seq, p_level  columns of the bucket, and what they are now
--            the others    columns of the bucket
--            o_…           the policy that is in force for it now
-- Locks      nothing
-- Errors     TG012 (31012) a change on the way was more than SQL knows
drop procedure if exists zone_bring;
create procedure zone_bring(
    in    p_zone_id      int,
    in    p_bucket_key   varbinary(255),
    in    p_from         int,
    in    p_to           int,
    in    p_last_us      bigint,
    in    p_carried_seq  bigint,
    in    p_holding      boolean,
    in    p_now_us       bigint,
    inout p_override_seq bigint,
    inout p_level        bigint,
    out   o_zone_limit   bigint,
    out   o_window_us    bigint,
    out   o_per_us       bigint,
    out   o_per_token    bigint
)
sql security definer
begin
    declare v_epoch         datetime default timestamp'1970-01-01 00:00:00';
    declare v_version       int default p_from;
    declare v_at_us         bigint default p_last_us;
    declare v_next_us       bigint;
    declare v_changed       boolean default true; -- the policy is another one from now on
    declare v_first         boolean default true;
    -- the policy by then
    declare v_algorithm     varchar(20) character set ascii;
    declare v_running       varchar(20) character set ascii;
    declare v_is_level      boolean;
    declare v_was_level     boolean;
    declare v_was_per_token bigint;
    -- the override
    declare v_rate          bigint;
    declare v_own_window_us bigint;
    declare v_burst         bigint;
    declare v_rate_gcd      bigint;
    -- what comes next, null for nothing until now
    declare v_end_us        bigint;
    declare v_change_us     bigint;
    declare v_over_us       bigint;
    declare v_given         decimal(65);
    declare continue handler for not found begin end;
    if p_override_seq is not null then
        select o.rate, o.window_us, o.burst, o.rate_gcd, timestampdiff(microsecond, v_epoch, o.ends_at)
        into v_rate, v_own_window_us, v_burst, v_rate_gcd, v_over_us
        from zone_override o
        where o.zone_id = p_zone_id and o.bucket_key = p_bucket_key and o.seq = p_override_seq;
    end if;
    steps: loop
        if v_changed then
            set v_was_level = v_is_level;
            set v_was_per_token = o_per_token;
            select v.algorithm, v.running_buckets,
                coalesce(v_rate, v.rate) div coalesce(v_rate_gcd, v.rate_gcd),
                -- A calendar's periods, and a window cut into slots, stay what they are.
                if(v.calendar is null and v.slots is null, coalesce(v_own_window_us, v.window_us), v.window_us),
                case
                    when v.algorithm = 'uniform' then 1
                    when v_rate is null then coalesce(v.burst, v.rate)
                    when v.algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'queue') then coalesce(v_burst, v_rate)
                    else v_rate
                end,
                v.algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue'),
                if(v.calendar is null and v.slots is null, coalesce(v_own_window_us, v.window_us), v.window_us)
                    div coalesce(v_rate_gcd, v.rate_gcd)
            into v_algorithm, v_running, o_per_us, o_window_us, o_zone_limit, v_is_level, o_per_token
            from zone_version v
            where v.zone_id = p_zone_id and v.version = v_version;
            if not v_first and v_change_us is not null and v_running <> 'as-is' then
                call zone_error('beyond', p_zone_id, 'change', null);
            end if;
            if v_first or p_level is null then
                set v_first = false;
            elseif v_was_level and v_is_level then
                -- The same number of tokens, rounded down, up to the new capacity.
                set v_given = p_level;
                set v_given = v_given * o_per_token;
                set v_given = (v_given - mod(mod(v_given, v_was_per_token) + v_was_per_token, v_was_per_token)) / v_was_per_token;
                set p_level = greatest(
                    least(v_given, o_zone_limit * o_per_token), o_zone_limit * o_per_token - 9223372036854775807 + o_per_us
                );
            else
                set p_level = null;
            end if;
            set v_changed = false;
        end if;
        set v_end_us = null;
        if p_holding then
            select timestampdiff(microsecond, v_epoch, min(h.ends_at))
            into v_end_us
            from zone_hold h force index (zone_hold_ends)
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.ends_at > date_add(v_epoch, interval v_at_us microsecond)
                and h.ends_at <= date_add(v_epoch, interval p_now_us microsecond) and h.seq > coalesce(p_carried_seq, 0);
        end if;
        set v_change_us = null;
        if v_version < p_to then
            select least(greatest(timestampdiff(microsecond, v_epoch, v.changed_at), v_at_us), p_now_us)
            into v_change_us
            from zone_version v
            where v.zone_id = p_zone_id and v.version = v_version + 1;
        end if;
        set v_next_us = greatest(
            v_at_us, least(coalesce(v_end_us, p_now_us), coalesce(v_change_us, p_now_us), coalesce(v_over_us, p_now_us), p_now_us)
        );
        if v_is_level and p_level is not null then
            set p_level = if(
                p_level >= o_zone_limit * o_per_token
                    or v_next_us - v_at_us >= (o_zone_limit * o_per_token - p_level + (o_per_us - 1)) div o_per_us,
                o_zone_limit * o_per_token, p_level + (v_next_us - v_at_us) * o_per_us
            );
        end if;
        set v_at_us = v_next_us;
        if v_end_us <= v_at_us then
            if v_is_level and p_level is not null then
                select sum(h.amount)
                into v_given
                from zone_hold h force index (zone_hold_ends)
                where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                    and h.ends_at = date_add(v_epoch, interval v_end_us microsecond) and h.seq > coalesce(p_carried_seq, 0);
                set p_level = least(p_level + v_given * o_per_token, o_zone_limit * o_per_token);
            end if;
        elseif v_change_us <= v_at_us then
            set v_version = v_version + 1;
            set v_changed = true;
        elseif v_over_us <= v_at_us then
            set p_override_seq = null;
            set v_rate = null;
            set v_own_window_us = null;
            set v_burst = null;
            set v_rate_gcd = null;
            set v_over_us = null;
            set v_change_us = null;
            set v_changed = true;
        else
            leave steps;
        end if;
    end loop;
end;
