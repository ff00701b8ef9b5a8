-- zone_window_before: what a bucket spent before a time, less what of that has ended by another; not called from
-- outside.
--
-- The ledger is read without locks, so that no gap between its rows is ever locked: by `select … into`, since what is
-- read in a `set` is locked above READ COMMITTED. A caller's older snapshot may
-- lack the newest rows of the locked bucket; prev_at shows where it does, and those are then fetched one by one,
-- newest first, by point reads that lock the row and nothing beside it. Each range read names its index: without
-- statistics of a bucket the optimizer may hold sorting the whole range for as cheap as its first row.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_us          the time, in microseconds since 1970
--            p_at_us       what ends after this time has not ended
--            p_origin_us   holds of charges before this are left out of all sums alike; null when there are none
--            p_now_us      when the check is decided
--            p_own         what is spent then, by a row that comes
--            p_back        what that row gives back, of a charge of p_back_us
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_seq … p_carried_seq  the bucket's head, see zone_bucket_hold
--            o_before      the sum
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
-- Errors     TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_window_before;
create procedure zone_window_before(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_us            bigint,
    in  p_at_us         bigint,
    in  p_origin_us     bigint,
    in  p_now_us        bigint,
    in  p_own           bigint,
    in  p_back          bigint,
    in  p_back_us       bigint,
    in  p_joined        boolean,
    in  p_seq           bigint,
    in  p_last_us       bigint,
    in  p_spent_total   bigint,
    in  p_carried       bigint,
    in  p_carried_us    bigint,
    in  p_carried_total bigint,
    in  p_carried_seq   bigint,
    out o_before        bigint
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_found       boolean default true;
    declare v_from        datetime(6);
    declare v_row_seq     bigint;
    declare v_row_at      datetime(6);
    declare v_row_prev_at datetime(6);
    declare continue handler for not found set v_found = false;
    if p_us <= p_carried_us then
        set o_before = p_carried_total - p_carried;
    elseif p_us > p_now_us then
        set o_before = p_spent_total + p_own;
    elseif p_seq = 0 or p_us > p_last_us then
        set o_before = p_spent_total;
    else
        -- The first row from there on, as far as the snapshot shows it; else the row that comes now.
        set v_from = date_add(v_epoch, interval p_us microsecond);
        select t.seq, t.spent_total - t.spent, t.prev_at
        into v_row_seq, o_before, v_row_prev_at
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= v_from
            and t.sealed
        order by t.created_at, t.seq
        limit 1;
        if not v_found then
            set v_row_seq = p_seq + 1;
            set v_row_prev_at = date_add(v_epoch, interval p_last_us microsecond);
            set v_found = true;
        end if;
        -- Back over rows that the snapshot does not show.
        while v_found and v_row_prev_at >= v_from do
            set v_row_seq = v_row_seq - 1;
            set v_row_at = v_row_prev_at;
            select t.spent_total - t.spent, t.prev_at
            into o_before, v_row_prev_at
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = v_row_at
                and t.seq = v_row_seq
            lock in share mode;
        end while;
        if not v_found then
            -- The row is gone with all before it, or it must not lack.
            set v_found = true;
            select d.spent_total
            into o_before
            from zone_txn_dropped d
            where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key and d.seq >= v_row_seq
            lock in share mode;
            if not v_found then
                call zone_error('ledger', p_zone_id, null, null);
            end if;
        end if;
        if o_before < p_carried_total then
            set o_before = p_carried_total;
        end if;
    end if;
    if p_us > p_origin_us then
        select o_before - coalesce(sum(h.amount), 0)
            - if(p_back_us >= p_origin_us and p_back_us < p_us, p_back, 0)
        into o_before
        from zone_hold h force index (zone_hold_charged)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.charged_at >= date_add(v_epoch, interval p_origin_us microsecond)
            and h.charged_at < date_add(v_epoch, interval p_us microsecond)
            and h.ends_at <= date_add(v_epoch, interval p_at_us microsecond)
            and h.seq > coalesce(p_carried_seq, 0);
    end if;
end;
