-- zone_decide: decides one check, without writing; the heart of the routines, not called from outside.
--
-- There are three families of algorithms. A window (sliding-log, fixed-window, sliding-counter) asks the ledger what
-- was spent between two times. A level (token-bucket, leaky-bucket, leaky-queue, uniform) is a number in the bucket's
-- head. Holds (distinct, concurrency) are counted one by one. Around them stand bans, a soft limit, a reserve for
-- critical checks and the mode of the zone.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_now_us      when it is decided, in microseconds since 1970, not before the bucket's last time
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_brought     the head is that of now already, by the version in it
--            p_own         what is spent now by a row that comes before the check's
--            p_back, p_back_us, p_back_seq  what that row gives back, of a charge of this time and seq; 0 for nothing
--            p_cost        what to spend, 0 to 2^40 units
--            p_critical    it may take from the reserve
--            p_member      whom it is about, where members are counted
--            p_ttl_us      a reservation: what it charges ends by itself after so long
--            p_held_back   another limit of the same request has blocked it: it must not pass
--            p_seq … p_holding  the bucket's head, see zone_bucket_hold; afterwards the one to record with the row,
--                          but for p_seq, p_last_us and p_holding
--            o_blocked     true when it may not pass
--            o_reason      why
--            o_spent       what it takes
--            o_zone_limit  the most that it could have been
--            o_remaining   what is left
--            o_retry_after_us  the least wait after which the same passes; null when it passes, or never will
--            o_delay_us    how long to wait for its turn, where it passes into a queue
--            o_ends_us     when what it takes ends by itself
--            o_ban_us      when the ban ends that it brings about
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the zone has no use for what is asked; TG004 (31004)
--            the bucket's total is full; TG008 (31008) the algorithm is not known; those of zone_window
drop procedure if exists zone_decide;
create procedure zone_decide(
    in    p_zone_id        int,
    in    p_bucket_key     varbinary(255),
    in    p_now_us         bigint,
    in    p_joined         boolean,
    in    p_brought        boolean,
    in    p_own            bigint,
    in    p_back           bigint,
    in    p_back_us        bigint,
    in    p_back_seq       bigint,
    in    p_cost           bigint,
    in    p_critical       boolean,
    in    p_member         varbinary(255),
    in    p_ttl_us         bigint,
    in    p_held_back      boolean,
    in    p_seq            bigint,
    in    p_last_us        bigint,
    inout p_spent_total    bigint,
    inout p_level          bigint,
    inout p_head_version   int,
    inout p_strikes        bigint,
    inout p_banned_us      bigint,
    inout p_bans           int,
    inout p_ban_strikes    bigint,
    inout p_carried        bigint,
    inout p_carried_us     bigint,
    inout p_carried_total  bigint,
    inout p_carried_seq    bigint,
    inout p_override_seq   bigint,
    in    p_holding        boolean,
    out   o_blocked        boolean,
    out   o_reason         varchar(20) character set ascii,
    out   o_spent          bigint,
    out   o_zone_limit     bigint,
    out   o_remaining      bigint,
    out   o_retry_after_us bigint,
    out   o_delay_us       bigint,
    out   o_ends_us        bigint,
    out   o_ban_us         bigint
)
sql security definer
begin
    declare v_epoch         datetime default timestamp'1970-01-01 00:00:00';
    declare v_found         boolean default true;
    -- the policy
    declare v_version       int;
    declare v_algorithm     varchar(20) character set ascii;
    declare v_window_us     bigint;
    declare v_limit         bigint;
    declare v_per_us        bigint;
    declare v_per_token     bigint;
    declare v_slots         int;
    declare v_calendar      varchar(20) character set ascii;
    declare v_soft_rate     bigint;
    declare v_reserve       bigint;
    declare v_mode          varchar(20) character set ascii;
    declare v_count_blocked boolean;
    declare v_ban_after     int;
    declare v_ban_within_us bigint;
    declare v_ban_for_us    bigint;
    declare v_ban_factor    int;
    declare v_ban_max_us    bigint;
    declare v_ban_from      varchar(20) character set ascii;
    declare v_ban_exempt    boolean;
    -- the decision
    declare v_brought       boolean default p_brought;
    declare v_banned        boolean;
    declare v_counts        boolean;
    declare v_is_level      boolean;
    declare v_capacity      bigint;
    declare v_level         bigint;
    declare v_kept          bigint;
    declare v_price         bigint;
    declare v_used          bigint;
    declare v_known         boolean;
    declare v_wanted        bigint default p_cost;
    declare v_soft          decimal(65);
    declare v_before        bigint;
    declare v_length_us     bigint;
    declare v_nth           int;
    declare continue handler for not found set v_found = false;

    -- 1. The policy, by a statement that began after the lock.
    select z.version, z.algorithm, z.window_us, if(z.algorithm = 'uniform', 1, coalesce(z.burst, z.rate)),
        z.rate div z.rate_gcd, z.window_us div z.rate_gcd, z.slots, z.calendar, z.soft_rate, z.reserve, z.mode,
        z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us, z.ban_factor, z.ban_max_us, z.ban_from
    into v_version, v_algorithm, v_window_us, v_limit, v_per_us, v_per_token, v_slots, v_calendar, v_soft_rate,
        v_reserve, v_mode, v_count_blocked, v_ban_after, v_ban_within_us, v_ban_for_us, v_ban_factor, v_ban_max_us,
        v_ban_from
    from zone_master z
    where z.id = p_zone_id;
    if p_brought or p_head_version > v_version then
        -- That by which the head was brought; or the snapshot shows an older one than the bucket was decided by.
        select z.version, z.algorithm, z.window_us, if(z.algorithm = 'uniform', 1, coalesce(z.burst, z.rate)),
            z.rate div z.rate_gcd, z.window_us div z.rate_gcd, z.slots, z.calendar, z.soft_rate, z.reserve, z.mode,
            z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us, z.ban_factor, z.ban_max_us, z.ban_from
        into v_version, v_algorithm, v_window_us, v_limit, v_per_us, v_per_token, v_slots, v_calendar, v_soft_rate,
            v_reserve, v_mode, v_count_blocked, v_ban_after, v_ban_within_us, v_ban_for_us, v_ban_factor, v_ban_max_us,
            v_ban_from
        from zone_version z
        where z.zone_id = p_zone_id and z.version = p_head_version
        lock in share mode;
    end if;
    if not v_found then
        call zone_error('no zone', p_zone_id, null, null);
    end if;
    set v_is_level = v_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue');
    if not v_is_level
        and v_algorithm not in ('sliding-log', 'fixed-window', 'sliding-counter', 'distinct', 'concurrency', 'capacity')
    then
        call zone_error('algorithm', v_algorithm, null, null);
    end if;

    -- 2. Bring the bucket to now. Where nothing happened to it meanwhile, only a level is brought, below.
    if not p_brought and (p_head_version < v_version or p_override_seq is not null or p_holding and v_is_level) then
        call zone_bring(
            p_zone_id, p_bucket_key, p_now_us, p_joined, v_version, p_seq, p_last_us, p_spent_total, p_level,
            p_head_version, p_carried, p_carried_us, p_carried_total, p_carried_seq, p_override_seq, p_holding,
            v_brought
        );
        if v_brought is null then
            call zone_error('killed', null, null, null);
        end if;
    end if;
    if p_override_seq is not null then
        call zone_policy(
            p_zone_id, p_bucket_key, v_version, p_override_seq, v_algorithm, v_window_us, v_limit, v_per_us,
            v_per_token, v_slots, v_calendar
        );
        select o.ban_exempt
        into v_ban_exempt
        from zone_override o
        where o.zone_id = p_zone_id and o.bucket_key = p_bucket_key and o.seq = p_override_seq
        lock in share mode;
    end if;

    -- 3. The settings that have no meaning for the algorithm.
    if v_algorithm = 'distinct' then
        if p_cost > 1 then
            call zone_error('cost of member', p_cost, null, null);
        elseif p_cost > 0 and p_member is null then
            call zone_error('no member', null, null, null);
        end if;
    elseif p_member is not null then
        call zone_error('member', v_algorithm, null, null);
    end if;
    if v_algorithm = 'capacity' and p_cost > 0 then
        call zone_error('capacity', null, null, null);
    end if;
    if v_algorithm = 'queue' and p_cost > 0 then
        call zone_error('queue', null, null, null);
    end if;
    if p_ttl_us is not null and v_algorithm in ('distinct', 'concurrency', 'capacity') then
        call zone_error('ttl', v_algorithm, null, null);
    end if;

    -- 4. The verdict of the algorithm.
    set v_banned = coalesce(p_banned_us > p_now_us, false);
    -- A blocked check that counts delays itself; what a ban keeps from passing it also keeps from counting.
    set v_counts = v_count_blocked and not p_held_back and not v_banned;
    -- An override may leave nothing but the reserve.
    set o_zone_limit = if(p_critical, v_limit, greatest(v_limit - v_reserve, 0));
    set o_reason = 'within_limit';
    set o_spent = 0;
    set o_retry_after_us = null;
    set o_delay_us = null;
    set o_ends_us = null;
    set o_ban_us = null;
    if v_is_level then
        set v_capacity = v_limit * v_per_token;
        if not v_brought and p_level is not null then
            if p_level >= v_capacity
                or p_now_us - p_last_us >= (v_capacity - p_level + (v_per_us - 1)) div v_per_us
            then
                set p_level = v_capacity;
            else
                set p_level = p_level + (p_now_us - p_last_us) * v_per_us;
            end if;
        end if;
    else
        set p_level = null;
    end if;
    set v_level = p_level;
    if v_mode = 'off' then
        set o_reason = 'off';
        set o_remaining = o_zone_limit;
    elseif v_is_level then
        set v_level = coalesce(v_level, v_capacity);
        -- The units that the reserve keeps back are not there for this check.
        set v_kept = v_capacity - o_zone_limit * v_per_token;
        if p_cost > o_zone_limit then
            set o_reason = 'exceeds_limit';
        else
            set v_price = p_cost * v_per_token;
            if p_cost > 0 and v_price + v_kept > v_level then
                set o_reason = 'over_limit';
                call zone_level_wait(
                    p_zone_id, p_bucket_key, p_now_us, p_holding, p_carried_seq, v_level, v_price + v_kept, v_capacity,
                    v_per_us, v_per_token, o_retry_after_us
                );
                -- It was killed, as zone_bring can be.
                if o_retry_after_us is null then
                    call zone_error('killed', null, null, null);
                end if;
            else
                if v_algorithm = 'leaky-queue' then
                    set o_delay_us = (v_capacity - v_level + (v_per_us - 1)) div v_per_us;
                end if;
                set v_level = v_level - v_price;
                set o_spent = p_cost;
                set v_soft = v_soft_rate;
                if p_cost > 0 and v_capacity - v_level > v_soft * v_per_token then
                    set o_reason = 'soft';
                end if;
            end if;
        end if;
        set o_remaining = if(v_level > v_kept, (v_level - v_kept) div v_per_token, 0);
    elseif v_algorithm in ('distinct', 'concurrency', 'capacity') then
        select coalesce(sum(h.amount), 0), coalesce(max(h.member = p_member), false)
        into v_used, v_known
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at > date_add(v_epoch, interval p_now_us microsecond)
            and h.seq > coalesce(p_carried_seq, 0)
            and not h.seq <=> p_back_seq;
        if v_known then
            set v_wanted = 0;
        end if;
        if v_wanted > o_zone_limit then
            set o_reason = 'exceeds_limit';
        elseif v_wanted > 0 and v_wanted > o_zone_limit - v_used then
            set o_reason = 'over_limit';
            -- Until so much of it has ended.
            select timestampdiff(microsecond, v_epoch, s.ends_at) - p_now_us
            into o_retry_after_us
            from (
                select h.ends_at, sum(h.amount) over (order by h.ends_at rows unbounded preceding) as ended
                from zone_hold h force index (zone_hold_ends)
                where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                    and h.ends_at > date_add(v_epoch, interval p_now_us microsecond)
                    and h.seq > coalesce(p_carried_seq, 0)
            ) s
            where s.ended >= v_used - (o_zone_limit - v_wanted)
            order by s.ends_at
            limit 1;
        else
            set o_spent = v_wanted;
            if p_cost > 0 and v_used + v_wanted > v_soft_rate then
                set o_reason = 'soft';
            end if;
            set o_ends_us = p_now_us + v_window_us;
        end if;
        set o_remaining = greatest(o_zone_limit - v_used, 0) - o_spent;
    else
        call zone_window(
            p_zone_id, p_bucket_key, p_now_us, p_joined, v_version, v_algorithm, v_window_us, v_slots, v_calendar,
            p_seq, p_last_us, p_spent_total, p_carried, p_carried_us, p_carried_total, p_carried_seq, p_holding, p_own,
            if(p_back_seq > coalesce(p_carried_seq, 0), p_back, 0), p_back_us, o_zone_limit, p_cost, v_counts, v_used, o_retry_after_us
        );
        set o_remaining = greatest(o_zone_limit - v_used, 0);
        if p_cost > o_zone_limit then
            set o_reason = 'exceeds_limit';
        elseif p_cost > 0 and v_used > o_zone_limit - p_cost then
            set o_reason = 'over_limit';
            set o_spent = if(v_counts, p_cost, 0);
            set o_remaining = greatest(o_remaining - o_spent, 0);
        else
            set o_spent = p_cost;
            set o_remaining = o_remaining - p_cost;
            if p_cost > 0 and v_used + p_cost > v_soft_rate then
                set o_reason = 'soft';
            end if;
        end if;
    end if;

    -- 5. Bans, and the other limits of the request.
    if v_mode <> 'off' and p_cost = 0 and v_banned then
        set o_remaining = 0;
    elseif v_mode <> 'off' and p_cost > 0 then
        if v_banned and o_reason <> 'exceeds_limit' then
            set o_retry_after_us = greatest(p_banned_us - p_now_us, coalesce(o_retry_after_us, 0));
            set o_reason = 'banned';
            set o_spent = 0;
            set o_remaining = 0;
            set o_delay_us = null;
            set o_ends_us = null;
            set v_level = p_level;
        elseif not v_banned and o_reason in ('over_limit', 'exceeds_limit')
            and v_ban_after is not null and not coalesce(v_ban_exempt, false)
        then
            set v_before = p_strikes;
            set p_strikes = p_strikes + 1;
            -- Those since the last ban are enough to know of, if they are too few.
            if p_strikes - p_ban_strikes >= v_ban_after then
                call zone_strikes_before(
                    p_zone_id, p_bucket_key, p_now_us - v_ban_within_us + 1, p_joined, p_seq, p_last_us, v_before
                );
                if p_strikes - greatest(v_before, p_ban_strikes) >= v_ban_after then
                    set p_bans = if(p_now_us - p_banned_us <= v_ban_max_us, p_bans + 1, 1);
                    set p_ban_strikes = p_strikes;
                    set v_length_us = v_ban_for_us;
                    set v_nth = 1;
                    while v_nth < p_bans and v_length_us < v_ban_max_us and v_ban_factor > 1 do
                        set v_length_us = v_length_us * v_ban_factor;
                        set v_nth = v_nth + 1;
                    end while;
                    set o_ban_us = p_now_us + if(v_ban_from = 'window', coalesce(o_retry_after_us, 0), 0);
                    set o_ban_us = o_ban_us + least(v_length_us, v_ban_max_us, 9223372036854775807 - o_ban_us);
                    set p_banned_us = o_ban_us;
                    set o_retry_after_us = greatest(o_ban_us - p_now_us, o_retry_after_us);
                end if;
            end if;
        end if;
        if p_held_back and o_reason in ('within_limit', 'soft') then
            set o_remaining = o_remaining + o_spent;
            set o_reason = 'held_back';
            set o_spent = 0;
            set o_delay_us = null;
            set o_ends_us = null;
            set v_level = p_level;
        end if;
    end if;

    -- 6. The head that it leaves behind.
    if p_spent_total > 9223372036854775807 - o_spent then
        call zone_error('total', p_spent_total, o_spent, null);
    end if;
    set o_blocked = v_mode = 'enforce' and o_reason in ('over_limit', 'exceeds_limit', 'banned', 'held_back');
    if o_spent = 0 or o_reason not in ('within_limit', 'soft') then
        set o_ends_us = null;
    elseif p_ttl_us is not null then
        set o_ends_us = p_now_us + p_ttl_us;
    end if;
    set p_spent_total = p_spent_total + o_spent;
    set p_level = v_level;
    set p_head_version = v_version;
end;
