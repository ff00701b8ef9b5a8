-- zone_window: what counts in a bucket's window, and how long a check that does not fit must wait; not called from
-- outside.
--
-- The sum over a window is the total now less the total before the window's first row. The wait is found at the row
-- by which enough had been spent: once that has left the window, the cost fits. Each is an index probe, whatever the
-- rate. The part of a charge that has ended by itself is subtracted for as long as the charge is in the window, at
-- the cost of a look at each such piece in there.
--
-- The count never rises while nothing arrives. So the wait ends behind the last end of something at which too much
-- counts still, and not after the next one; and what had been spent by a time, less what of that has ended, never
-- falls. Both are found by halving, in about as many steps as the number of such pieces has binary digits.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_now_us      when it is decided, in microseconds since 1970
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_version … p_calendar  by what is counted, see zone_policy
--            p_seq … p_holding       the bucket's head, see zone_bucket_hold
--            p_own         what is spent now by a row that comes
--            p_back        what that row gives back, of a charge of p_back_us; only where nothing is asked for
--            p_limit       the most that may count
--            p_cost        what is asked for
--            p_counts      true when a check that does not fit spends its cost all the same, and so delays itself
--            o_used        what counts now
--            o_wait_us     the least wait after which the cost fits; null when it fits now, or never
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
-- Errors     TG005 (31005) the ledger lacks rows of the window; TG007 (31007) the caller's snapshot is too old
drop procedure if exists zone_window;
create procedure zone_window(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_now_us        bigint,
    in  p_joined        boolean,
    in  p_version       int,
    in  p_algorithm     varchar(20) character set ascii,
    in  p_window_us     bigint,
    in  p_slots         int,
    in  p_calendar      varchar(20) character set ascii,
    in  p_seq           bigint,
    in  p_last_us       bigint,
    in  p_spent_total   bigint,
    in  p_carried       bigint,
    in  p_carried_us    bigint,
    in  p_carried_total bigint,
    in  p_carried_seq   bigint,
    in  p_holding       boolean,
    in  p_own           bigint,
    in  p_back          bigint,
    in  p_back_us       bigint,
    in  p_limit         bigint,
    in  p_cost          bigint,
    in  p_counts        boolean,
    out o_used          bigint,
    out o_wait_us       bigint
)
sql security definer
sums: begin
    declare v_epoch      datetime default timestamp'1970-01-01 00:00:00';
    declare v_never      datetime(6) default timestamp'9999-12-31 23:59:59.999999';
    declare v_slot_us    bigint default p_window_us div coalesce(p_slots, 1);
    declare v_own        bigint default p_own;
    declare v_at_us      bigint default p_now_us;
    declare v_start_us   bigint;
    declare v_end_us     bigint;
    declare v_from_us    bigint;
    declare v_fade_us    bigint;
    declare v_floor_us   bigint;  -- nothing before it counts now
    declare v_origin_us  bigint;
    declare v_total      bigint;
    declare v_before     bigint;
    declare v_used       bigint;
    declare v_share      decimal(65);
    declare v_must_leave bigint;
    declare v_reached_us bigint;
    declare v_ended      bigint default 0;
    declare v_ended_then bigint default 0;
    declare v_slot_spent bigint;
    declare v_there_us   bigint;
    declare v_skip       bigint;
    declare v_low_us     bigint;  -- too much counts then
    declare v_high_us    bigint;  -- and then no longer
    declare v_low        datetime(6);
    declare v_middle     datetime(6);
    declare v_high       datetime(6) default v_never;
    declare continue handler for not found begin end;
    ending: loop
        -- The units that count at v_at_us.
        if p_algorithm = 'sliding-log' then
            set v_from_us = v_at_us - p_window_us + 1;
        elseif p_algorithm = 'sliding-counter' then
            set v_start_us = v_at_us - v_at_us mod v_slot_us;
            set v_from_us = v_start_us + v_slot_us - p_window_us;
            set v_fade_us = v_from_us - v_slot_us;
        elseif p_calendar is null then
            set v_from_us = v_at_us - v_at_us mod p_window_us;
        else
            call zone_calendar_period(p_zone_id, p_version, p_calendar, v_at_us, v_from_us, v_end_us);
        end if;
        if v_floor_us is null then
            set v_floor_us = coalesce(v_fade_us, v_from_us);
            set v_origin_us = if(p_holding, v_floor_us, null);
        end if;
        call zone_window_before(
            p_zone_id, p_bucket_key, v_from_us, v_at_us, v_origin_us, p_now_us, v_own, p_back, p_back_us, p_joined, p_seq, p_last_us,
            p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, v_before
        );
        set v_total = p_spent_total + v_own;
        if p_holding then
            select v_total - coalesce(sum(h.amount), 0) - if(p_back_us >= v_origin_us, p_back, 0)
            into v_total
            from zone_hold h force index (zone_hold_charged)
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.charged_at >= date_add(v_epoch, interval v_origin_us microsecond)
                and h.ends_at <= date_add(v_epoch, interval v_at_us microsecond)
                and h.seq > coalesce(p_carried_seq, 0);
        end if;
        set v_used = v_total - v_before;
        if v_fade_us is not null then
            -- A share of the slot that the window is leaving, rounded down.
            set v_share = v_before;
            call zone_window_before(
                p_zone_id, p_bucket_key, v_fade_us, v_at_us, v_origin_us, p_now_us, v_own, p_back, p_back_us, p_joined, p_seq, p_last_us,
                p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, v_before
            );
            set v_share = greatest(v_share - v_before, 0) * (v_start_us + v_slot_us - v_at_us);
            set v_used = v_used + (v_share - mod(v_share, v_slot_us)) / v_slot_us;
        end if;
        if o_used is null then
            set o_used = v_used;
            if p_cost not between 1 and p_limit or v_used <= p_limit - p_cost then
                leave sums;
            end if;
            if p_counts then
                set v_own = v_own + p_cost;
                set v_total = v_total + p_cost;
            end if;
        end if;
        if v_used > p_limit - p_cost then
            set v_low_us = v_at_us;
            set v_must_leave = v_total - (p_limit - p_cost);
        else
            set v_high_us = v_at_us;
            set v_high = date_add(v_epoch, interval v_high_us microsecond);
        end if;
        if not p_holding then
            leave ending;
        end if;
        -- The one in the middle of what ends between.
        set v_low = date_add(v_epoch, interval v_low_us microsecond);
        select count(*) div 2
        into v_skip
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.ends_at > v_low and h.ends_at < v_high;
        set v_at_us = null;
        select timestampdiff(microsecond, v_epoch, h.ends_at)
        into v_at_us
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.ends_at > v_low and h.ends_at < v_high
        order by h.ends_at
        limit v_skip, 1;
        if v_at_us is null then
            leave ending;
        end if;
    end loop;

    -- Seen from there, nothing ends by itself any more: by when had so much been spent, of what has not ended?
    set v_at_us = v_low_us;
    if p_holding then
        set v_low = date_add(v_epoch, interval v_origin_us - 1 microsecond);
        set v_high = v_never;
    end if;
    reach: loop
        -- The one in the middle of the charges between.
        set v_middle = null;
        if p_holding then
            select count(*) div 2
            into v_skip
            from zone_hold h force index (zone_hold_charged)
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.charged_at > v_low and h.charged_at < v_high;
            select h.charged_at
            into v_middle
            from zone_hold h force index (zone_hold_charged)
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.charged_at > v_low and h.charged_at < v_high
            order by h.charged_at
            limit v_skip, 1;
        end if;
        set v_ended_then = v_ended;
        if v_middle is not null then
            select v_ended + coalesce(sum(h.amount), 0)
            into v_ended_then
            from zone_hold h force index (zone_hold_charged)
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.charged_at > v_low and h.charged_at <= v_middle
                and h.ends_at <= date_add(v_epoch, interval v_at_us microsecond)
                and h.seq > coalesce(p_carried_seq, 0);
        end if;
        call zone_window_reached(
            p_zone_id, p_bucket_key, v_must_leave + v_ended_then, v_floor_us, p_now_us, p_seq, p_last_us, p_spent_total,
            p_carried_us, p_carried_total, v_reached_us
        );
        if v_middle is null then
            leave reach;
        elseif v_reached_us > timestampdiff(microsecond, v_epoch, v_middle) then
            set v_low = v_middle;
            set v_ended = v_ended_then;
        else
            set v_high = v_middle;
        end if;
    end loop;

    -- When has that left the window?
    if p_algorithm = 'sliding-log' then
        set v_there_us = v_reached_us + p_window_us;
    elseif p_algorithm = 'sliding-counter' then
        -- floor(spent × rest / slot) counts when so much of the slot is still in the window. The longest rest for
        -- which that is little enough is one below ceil((spent − must leave + 1) × slot / spent).
        set v_start_us = v_reached_us - v_reached_us mod v_slot_us;
        call zone_window_before(
            p_zone_id, p_bucket_key, v_start_us, v_at_us, v_origin_us, p_now_us, v_own, 0, null, p_joined, p_seq, p_last_us,
            p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, v_before
        );
        call zone_window_before(
            p_zone_id, p_bucket_key, v_start_us + v_slot_us, v_at_us, v_origin_us, p_now_us, v_own, 0, null, p_joined, p_seq,
            p_last_us, p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, v_slot_spent
        );
        set v_slot_spent = v_slot_spent - v_before;
        set v_share = greatest(v_slot_spent - (v_must_leave - v_before), 0) + 1;
        set v_share = v_share * v_slot_us + (greatest(v_slot_spent, 1) - 1);
        set v_share = (v_share - mod(v_share, greatest(v_slot_spent, 1))) / greatest(v_slot_spent, 1) - 1;
        set v_there_us = v_start_us + p_window_us + v_slot_us - least(greatest(v_share, 0), v_slot_us);
    elseif p_calendar is null then
        set v_there_us = v_reached_us - v_reached_us mod p_window_us + p_window_us;
    else
        call zone_calendar_period(p_zone_id, p_version, p_calendar, v_reached_us, v_from_us, v_there_us);
    end if;
    set v_there_us = greatest(v_there_us, v_at_us);
    set o_wait_us = least(v_there_us, coalesce(v_high_us, v_there_us)) - p_now_us;
end;
