-- zone_strikes_before: how many blocked checks of a bucket counted for bans before a time; not called from outside.
--
-- The row before that time is the one before the first row that is not; that is found as in zone_window_before.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_us          the time, in microseconds since 1970
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_seq         seq of the bucket's last row
--            p_last_us     its created_at
--            p_strikes     those of the last row; afterwards those of the last one before the time, 0 without one
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
drop procedure if exists zone_strikes_before;
create procedure zone_strikes_before(
    in    p_zone_id    int,
    in    p_bucket_key varbinary(255),
    in    p_us         bigint,
    in    p_joined     boolean,
    in    p_seq        bigint,
    in    p_last_us    bigint,
    inout p_strikes    bigint
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_found       boolean default true;
    declare v_from        datetime(6) default date_add(v_epoch, interval p_us microsecond);
    declare v_row_seq     bigint;
    declare v_row_at      datetime(6);
    declare v_row_prev_at datetime(6);
    declare continue handler for not found set v_found = false;
    if p_seq > 0 and p_us <= p_last_us then
        set v_row_seq = p_seq + 1;
        set v_row_prev_at = date_add(v_epoch, interval p_last_us microsecond);
        select t.seq, t.prev_at
        into v_row_seq, v_row_prev_at
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= v_from
            and t.sealed
        order by t.created_at, t.seq
        limit 1;
        set v_found = true;
        step: while v_found and v_row_prev_at is not null do
            set v_row_seq = v_row_seq - 1;
            set v_row_at = v_row_prev_at;
            select t.strikes, t.prev_at
            into p_strikes, v_row_prev_at
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = v_row_at
                and t.seq = v_row_seq
            lock in share mode;
            if v_row_at < v_from then
                leave step;
            end if;
        end while;
        if not v_found then
            -- The row is gone with all before it.
            set p_strikes = 0;
            select d.strikes
            into p_strikes
            from zone_txn_dropped d
            where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key
            lock in share mode;
        elseif coalesce(v_row_at >= v_from, true) then
            set p_strikes = 0;
        end if;
    end if;
end;
