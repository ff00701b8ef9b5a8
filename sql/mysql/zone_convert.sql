-- zone_convert: carries what was used of a bucket under one policy over to another; not called from outside.
--
-- Arguments  p_zone_id       the zone
--            p_bucket_key    the bucket
--            p_at_us         when the policy changes, in microseconds since 1970
--            p_joined        the transaction is the caller's and may be of any isolation level
--            p_version       the version before
--            p_override_seq  the override before
--            p_new_version   the version after
--            p_new_override_seq  the override after
--            p_running       what the change does to buckets in use: as-is, proportional or reset
--            p_seq … p_holding  the bucket's head, see zone_bucket_hold; p_level is that at p_at_us
-- Locks      the versions and overrides, and the rows that the caller's snapshot does not show, shared, until the
--            transaction ends
-- Errors     those of zone_window
drop procedure if exists zone_convert;
create procedure zone_convert(
    in    p_zone_id          int,
    in    p_bucket_key       varbinary(255),
    in    p_at_us            bigint,
    in    p_joined           boolean,
    in    p_version          int,
    in    p_override_seq     bigint,
    in    p_new_version      int,
    in    p_new_override_seq bigint,
    in    p_running          varchar(20) character set ascii,
    in    p_seq              bigint,
    in    p_last_us          bigint,
    in    p_spent_total      bigint,
    inout p_level            bigint,
    inout p_carried          bigint,
    inout p_carried_us       bigint,
    inout p_carried_total    bigint,
    inout p_carried_seq      bigint,
    in    p_holding          boolean
)
sql security definer
begin
    declare v_algorithm     varchar(20) character set ascii;
    declare v_window_us     bigint;
    declare v_limit         bigint;
    declare v_per_us        bigint;
    declare v_per_token     bigint;
    declare v_slots         int;
    declare v_calendar      varchar(20) character set ascii;
    declare v_new_algorithm varchar(20) character set ascii;
    declare v_new_window_us bigint;
    declare v_new_limit     bigint;
    declare v_new_per_us    bigint;
    declare v_new_per_token bigint;
    declare v_new_slots     int;
    declare v_new_calendar  varchar(20) character set ascii;
    declare v_was_level     boolean;
    declare v_is_level      boolean;
    declare v_wait_us       bigint;
    declare v_used          bigint default 0;
    declare v_of            bigint;
    declare v_share         decimal(65);
    call zone_policy(
        p_zone_id, p_bucket_key, p_version, p_override_seq, v_algorithm, v_window_us, v_limit, v_per_us, v_per_token,
        v_slots, v_calendar
    );
    call zone_policy(
        p_zone_id, p_bucket_key, p_new_version, p_new_override_seq, v_new_algorithm, v_new_window_us, v_new_limit,
        v_new_per_us, v_new_per_token, v_new_slots, v_new_calendar
    );
    set v_was_level = v_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue');
    set v_is_level = v_new_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue');
    if p_running = 'reset' then
        set p_carried = 0;
        set p_carried_us = p_at_us;
        set p_carried_total = p_spent_total;
        set p_carried_seq = p_seq;
        set p_level = null;
    elseif p_running = 'proportional'
        and v_algorithm not in ('distinct', 'concurrency', 'capacity')
        and v_new_algorithm not in ('distinct', 'concurrency', 'capacity')
    then
        if v_was_level then
            set v_of = v_limit * v_per_token;
            if p_level is not null then
                set v_used = v_of - p_level;
            end if;
        else
            call zone_window(
                p_zone_id, p_bucket_key, p_at_us, p_joined, p_version, v_algorithm, v_window_us, v_slots, v_calendar,
                p_seq, p_last_us, p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, p_holding, 0,
                0, null, v_limit, 0, false, v_used, v_wait_us
            );
            set v_of = greatest(v_limit, 1);
        end if;
        -- The same part of the new limit, rounded up.
        set v_share = v_new_limit;
        if v_is_level then
            set v_share = v_share * v_new_per_token;
        end if;
        set v_share = v_share * v_used + (v_of - 1);
        set v_share = (v_share - mod(v_share, v_of)) / v_of;
        if v_is_level then
            set p_level = greatest(
                v_new_limit * v_new_per_token - v_share,
                v_new_limit * v_new_per_token - 9223372036854775807 + v_new_per_us
            );
        else
            -- More than four times what any limit can be would say nothing more.
            set p_carried = least(v_share, 4398046511104);
            set p_carried_us = p_at_us;
            set p_carried_total = p_spent_total;
            set p_carried_seq = p_seq;
            set p_level = null;
        end if;
    elseif v_was_level and v_is_level then
        -- The same number of tokens, rounded down, up to the new capacity.
        set v_share = p_level;
        set v_share = v_share * v_new_per_token;
        set v_share = (v_share - mod(mod(v_share, v_per_token) + v_per_token, v_per_token)) / v_per_token;
        set p_level = greatest(
            least(v_share, v_new_limit * v_new_per_token),
            v_new_limit * v_new_per_token - 9223372036854775807 + v_new_per_us
        );
    else
        set p_level = null;
    end if;
end;
