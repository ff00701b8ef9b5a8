-- zone_bring: brings a locked bucket to now, through the changes of its policy, the end of its override and the ends
-- of what it holds; not called from outside.
--
-- A level is brought to each such time under the policy before it. The bucket's last_us stays: p_level is that at
-- p_now_us.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_now_us      the time, in microseconds since 1970, not before the bucket's last one; a change of policy
--                          after it counts as made at it
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_version     the version in force
--            p_seq … p_holding  the bucket's head, see zone_bucket_hold
--            o_brought     true; null where it was killed: MySQL ends a routine that is killed while it opens a cursor
--                          without an error, and its caller goes on
-- Locks      the versions since the bucket's last row, and the rows that the caller's snapshot does not show, shared,
--            until the transaction ends
-- Errors     those of zone_window
drop procedure if exists zone_bring;
create procedure zone_bring(
    in    p_zone_id       int,
    in    p_bucket_key    varbinary(255),
    in    p_now_us        bigint,
    in    p_joined        boolean,
    in    p_version       int,
    in    p_seq           bigint,
    in    p_last_us       bigint,
    in    p_spent_total   bigint,
    inout p_level         bigint,
    in    p_head_version  int,
    inout p_carried       bigint,
    inout p_carried_us    bigint,
    inout p_carried_total bigint,
    inout p_carried_seq   bigint,
    inout p_override_seq  bigint,
    in    p_holding       boolean,
    out   o_brought       boolean
)
sql security definer
begin
    declare v_epoch     datetime default timestamp'1970-01-01 00:00:00';
    declare v_version   int default if(p_seq = 0, p_version, p_head_version);
    declare v_at_us     bigint default if(p_seq = 0, p_now_us, p_last_us);
    declare v_next_us   bigint;
    declare v_found     boolean;
    declare v_fetch     boolean default p_holding;
    -- the policy in force at v_at_us
    declare v_algorithm varchar(20) character set ascii;
    declare v_window_us bigint;
    declare v_limit     bigint;
    declare v_per_us    bigint;
    declare v_per_token bigint;
    declare v_slots     int;
    declare v_calendar  varchar(20) character set ascii;
    declare v_capacity  bigint;
    -- what comes next, null for nothing until now
    declare v_end_us    bigint;
    declare v_amount    bigint;
    declare v_end_seq   bigint;
    declare v_change_us bigint;
    declare v_running   varchar(20) character set ascii;
    declare v_over_us   bigint;
    declare v_given     decimal(65);
    declare c_end cursor for
        select timestampdiff(microsecond, v_epoch, h.ends_at), h.amount, h.seq
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at > date_add(v_epoch, interval v_at_us microsecond)
            and h.ends_at <= date_add(v_epoch, interval p_now_us microsecond)
        order by h.ends_at;
    declare continue handler for not found set v_found = false;
    if p_holding then
        open c_end;
    end if;
    if p_override_seq is not null then
        select timestampdiff(microsecond, v_epoch, o.ends_at)
        into v_over_us
        from zone_override o
        where o.zone_id = p_zone_id and o.bucket_key = p_bucket_key and o.seq = p_override_seq
        lock in share mode;
        if v_over_us > p_now_us then
            set v_over_us = null;
        end if;
    end if;
    steps: loop
        if v_algorithm is null then
            call zone_policy(
                p_zone_id, p_bucket_key, v_version, p_override_seq, v_algorithm, v_window_us, v_limit, v_per_us,
                v_per_token, v_slots, v_calendar
            );
            set v_capacity = if(
                v_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue'), v_limit * v_per_token, null
            );
            set v_change_us = null;
            if v_version < p_version then
                select timestampdiff(microsecond, v_epoch, v.changed_at), v.running_buckets
                into v_change_us, v_running
                from zone_version v
                where v.zone_id = p_zone_id and v.version = v_version + 1
                lock in share mode;
            end if;
        end if;
        if v_fetch then
            set v_found = true;
            fetch c_end into v_end_us, v_amount, v_end_seq;
            if not v_found then
                set v_end_us = null;
            end if;
            set v_fetch = false;
        end if;
        set v_next_us = greatest(
            v_at_us, least(coalesce(v_end_us, p_now_us), coalesce(v_change_us, p_now_us), coalesce(v_over_us, p_now_us))
        );
        if p_level >= v_capacity or v_next_us - v_at_us >= (v_capacity - p_level + (v_per_us - 1)) div v_per_us then
            set p_level = v_capacity;
        elseif v_capacity is not null and p_level is not null then
            set p_level = p_level + (v_next_us - v_at_us) * v_per_us;
        end if;
        set v_at_us = v_next_us;
        if v_end_us <= v_at_us then
            -- Nothing comes back of what a change of policy put something else in place of.
            if v_capacity is not null and v_end_seq > coalesce(p_carried_seq, 0) then
                set v_given = v_amount;
                set p_level = least(p_level + v_given * v_per_token, v_capacity);
            end if;
            set v_fetch = true;
        elseif least(v_change_us, p_now_us) <= v_at_us then
            call zone_convert(
                p_zone_id, p_bucket_key, v_at_us, p_joined, v_version, p_override_seq, v_version + 1, p_override_seq,
                v_running, p_seq, p_last_us, p_spent_total, p_level, p_carried, p_carried_us, p_carried_total,
                p_carried_seq, p_holding
            );
            set v_version = v_version + 1;
            set v_algorithm = null;
        elseif v_over_us <= v_at_us then
            call zone_convert(
                p_zone_id, p_bucket_key, v_at_us, p_joined, v_version, p_override_seq, v_version, null, 'as-is', p_seq,
                p_last_us, p_spent_total, p_level, p_carried, p_carried_us, p_carried_total, p_carried_seq, p_holding
            );
            set p_override_seq = null;
            set v_over_us = null;
            set v_algorithm = null;
        else
            leave steps;
        end if;
    end loop;
    if p_holding then
        close c_end;
    end if;
    set o_brought = true;
end;
