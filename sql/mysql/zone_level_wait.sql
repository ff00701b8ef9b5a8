-- zone_level_wait: the least time until a level is there: by what flows in, and by what is reserved and comes back on the way; not
-- called from outside.
--
-- Arguments  p_zone_id, p_bucket_key, p_carried_seq, p_holding  the bucket
--            p_level                             its level now
--            p_capacity, p_per_us, p_per_token   the policy
--            p_wanted                            the level that is waited for, at most the capacity
--            p_now_us                            the time, in microseconds since 1970
--            o_wait_us                           microseconds from then
-- Locks      nothing
drop procedure if exists zone_level_wait;
create procedure zone_level_wait(
    in  p_zone_id     int,
    in  p_bucket_key  varbinary(255),
    in  p_carried_seq bigint,
    in  p_holding     boolean,
    in  p_level       bigint,
    in  p_capacity    bigint,
    in  p_per_us      bigint,
    in  p_per_token   bigint,
    in  p_wanted      bigint,
    in  p_now_us      bigint,
    out o_wait_us     bigint
)
sql security definer
begin
    declare v_epoch    datetime default timestamp'1970-01-01 00:00:00';
    declare v_level    decimal(65) default p_level;
    declare v_at_us    bigint default p_now_us;
    declare v_there_us bigint;
    declare v_end_us   bigint;
    declare v_given    decimal(65);
    steps: loop
        set v_there_us = v_at_us + least(
            (greatest(p_wanted - v_level, 0) + (p_per_us - 1)) div p_per_us, 9223372036854775807 - v_at_us
        );
        if not p_holding then
            leave steps;
        end if;
        select timestampdiff(microsecond, v_epoch, min(h.ends_at))
        into v_end_us
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at > date_add(v_epoch, interval v_at_us microsecond) and h.seq > coalesce(p_carried_seq, 0);
        if v_end_us is null or v_end_us >= v_there_us then
            leave steps;
        end if;
        select sum(h.amount)
        into v_given
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at = date_add(v_epoch, interval v_end_us microsecond) and h.seq > coalesce(p_carried_seq, 0);
        set v_level = least(v_level + (v_end_us - v_at_us) * p_per_us, p_capacity);
        set v_level = least(v_level + v_given * p_per_token, p_capacity);
        set v_at_us = v_end_us;
    end loop;
    set o_wait_us = v_there_us - p_now_us;
end;
