-- zone_level_wait: how long until a level is there, by what flows in, and by what is held and given back on the way;
-- not called from outside.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_now_us      now, in microseconds since 1970
--            p_holding     whether the bucket may hold anything
--            p_carried_seq  what was charged up to this row gives nothing back; null for no such row
--            p_level       the level now
--            p_wanted      the level that is waited for, not above the capacity
--            p_capacity    the most that the level can be
--            p_per_us      what a microsecond adds
--            p_per_token   a token
--            o_wait_us     the least wait
-- Locks      nothing
drop procedure if exists zone_level_wait;
create procedure zone_level_wait(
    in  p_zone_id     int,
    in  p_bucket_key  varbinary(255),
    in  p_now_us      bigint,
    in  p_holding     boolean,
    in  p_carried_seq bigint,
    in  p_level       bigint,
    in  p_wanted      bigint,
    in  p_capacity    bigint,
    in  p_per_us      bigint,
    in  p_per_token   bigint,
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
    declare v_found    boolean;
    declare c_end cursor for
        select timestampdiff(microsecond, v_epoch, h.ends_at), h.amount
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at > date_add(v_epoch, interval p_now_us microsecond)
            and h.seq > coalesce(p_carried_seq, 0)
        order by h.ends_at;
    declare continue handler for not found set v_found = false;
    if p_holding then
        open c_end;
    end if;
    steps: loop
        set v_there_us = v_at_us + least(
            (greatest(p_wanted - v_level, 0) + (p_per_us - 1)) div p_per_us, 9223372036854775807 - v_at_us
        );
        set v_found = p_holding;
        if p_holding then
            fetch c_end into v_end_us, v_given;
        end if;
        if not v_found or v_end_us >= v_there_us then
            leave steps;
        end if;
        set v_level = least(v_level + (v_end_us - v_at_us) * p_per_us + v_given * p_per_token, p_capacity);
        set v_at_us = v_end_us;
    end loop;
    if p_holding then
        close c_end;
    end if;
    set o_wait_us = v_there_us - p_now_us;
end;
