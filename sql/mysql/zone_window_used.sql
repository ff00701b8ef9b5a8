-- zone_window_used: what counts of a bucket's charges at a time, if nothing else arrives; not called from outside.
--
-- Arguments  p_algorithm, p_window_us  the policy
--            p_at_us     the time, now or later, in microseconds since 1970
--            the others  columns of the bucket
--            o_used      the units
-- Locks      nothing
-- Errors     TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_window_used;
create procedure zone_window_used(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_algorithm     varchar(20) character set ascii,
    in  p_window_us     bigint,
    in  p_at_us         bigint,
    in  p_last_us       bigint,
    in  p_total         bigint,
    in  p_carried       bigint,
    in  p_carried_us    bigint,
    in  p_carried_total bigint,
    in  p_carried_seq   bigint,
    in  p_holding       boolean,
    out o_used          bigint
)
sql security definer
begin
    declare v_epoch   datetime default timestamp'1970-01-01 00:00:00';
    declare v_from_us bigint default p_at_us - if(
        p_algorithm = 'fixed-window', mod(mod(p_at_us, p_window_us) + p_window_us, p_window_us), p_window_us - 1
    );
    declare v_from    datetime(6) default date_add(v_epoch, interval v_from_us microsecond);
    declare v_before  bigint default p_total;
    declare v_ended   bigint default 0;
    declare continue handler for not found begin end;
    if p_carried_us >= v_from_us then
        set v_before = p_carried_total - p_carried;
    elseif p_last_us >= v_from_us then
        set v_before = null;
        -- In a derived table for the reason that zone_engine_ask tells.
        select r.total_before
        into v_before
        from (
            select t.spent_total - t.spent as total_before
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= v_from and t.sealed
            order by t.created_at, t.seq
            limit 1
        ) r;
        if v_before is null then
            call zone_error('ledger', p_zone_id, null, null);
        end if;
    end if;
    if p_holding then
        select coalesce(sum(h.amount), 0)
        into v_ended
        from zone_hold h force index (zone_hold_charged)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.charged_at >= v_from
            and h.ends_at <= date_add(v_epoch, interval p_at_us microsecond) and h.seq > coalesce(p_carried_seq, 0);
    end if;
    set o_used = p_total - v_before - v_ended;
end;
