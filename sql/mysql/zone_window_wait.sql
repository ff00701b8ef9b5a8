-- zone_window_wait: the least time until at most so much counts, if nothing else arrives. Now more does; not called from outside.
--
-- Arguments  p_algorithm, p_window_us  the policy
--            p_now_us    the time, in microseconds since 1970
--            p_room      so much
--            the others  columns of the bucket
--            o_wait_us   microseconds from then
-- Locks      nothing
-- Errors     TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_window_wait;
create procedure zone_window_wait(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_algorithm     varchar(20) character set ascii,
    in  p_window_us     bigint,
    in  p_now_us        bigint,
    in  p_last_us       bigint,
    in  p_total         bigint,
    in  p_carried       bigint,
    in  p_carried_us    bigint,
    in  p_carried_total bigint,
    in  p_carried_seq   bigint,
    in  p_holding       boolean,
    in  p_room          bigint,
    out o_wait_us       bigint
)
sql security definer
begin
    declare v_low_us  bigint default p_now_us;                -- more counts then
    declare v_high_us bigint default p_now_us + p_window_us;  -- and no more then
    declare v_at_us   bigint;
    declare v_used    bigint;
    if p_algorithm = 'fixed-window' then
        set v_high_us = v_high_us - mod(mod(p_now_us, p_window_us) + p_window_us, p_window_us);
    elseif not p_holding then
        -- Enough has left when the row has by which so much had been spent.
        if p_total - p_room <= p_carried_total then
            set v_at_us = p_carried_us;
        else
            call zone_total_reached(
                p_zone_id, p_bucket_key, p_total - p_room, p_now_us - p_window_us, p_last_us, v_at_us
            );
        end if;
        set v_high_us = coalesce(v_at_us, p_now_us) + p_window_us;
    end if;
    -- The sum never rises meanwhile, so with charges that end by themselves the time is found by halving.
    while p_holding and v_high_us - v_low_us > 1 do
        set v_at_us = v_low_us + (v_high_us - v_low_us) div 2;
        call zone_window_used(
            p_zone_id, p_bucket_key, p_algorithm, p_window_us, v_at_us, p_last_us, p_total, p_carried, p_carried_us,
            p_carried_total, p_carried_seq, true, v_used
        );
        if v_used > p_room then
            set v_low_us = v_at_us;
        else
            set v_high_us = v_at_us;
        end if;
    end while;
    set o_wait_us = v_high_us - p_now_us;
end;
