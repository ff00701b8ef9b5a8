-- zone_window_reached: when a bucket's total was first at least so much; not called from outside.
--
-- Reads the ledger as zone_window_before does.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_total       so much
--            p_now_us      when the check is decided, in microseconds since 1970; what was never spent is then
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_seq … p_carried_total  the bucket's head, see zone_bucket_hold
--            o_reached_us  the time
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
-- Errors     TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_window_reached;
create procedure zone_window_reached(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_total         bigint,
    in  p_now_us        bigint,
    in  p_joined        boolean,
    in  p_seq           bigint,
    in  p_last_us       bigint,
    in  p_spent_total   bigint,
    in  p_carried_us    bigint,
    in  p_carried_total bigint,
    out o_reached_us    bigint
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_found       boolean default true;
    declare v_row_seq     bigint;
    declare v_row_before  bigint;
    declare v_row_at      datetime(6);
    declare v_row_prev_at datetime(6);
    declare continue handler for not found set v_found = false;
    if p_total <= p_carried_total then
        set o_reached_us = p_carried_us;
    elseif p_total > p_spent_total then
        set o_reached_us = p_now_us;
    else
        select t.seq, t.spent_total - t.spent, t.created_at, t.prev_at
        into v_row_seq, v_row_before, v_row_at, v_row_prev_at
        from zone_txn t force index (zone_txn_spent)
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.spent_total >= p_total
            and t.sealed
        order by t.spent_total, t.seq
        limit 1;
        if not v_found then
            set v_row_seq = p_seq + 1;
            set v_row_before = p_spent_total;
            set v_row_prev_at = date_add(v_epoch, interval p_last_us microsecond);
            set v_found = true;
        end if;
        -- Back over rows that the snapshot does not show.
        while v_found and v_row_before >= p_total do
            set v_row_seq = v_row_seq - 1;
            set v_row_at = v_row_prev_at;
            select t.spent_total - t.spent, t.prev_at
            into v_row_before, v_row_prev_at
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = v_row_at
                and t.seq = v_row_seq
            lock in share mode;
        end while;
        if not v_found then
            call zone_error('ledger', p_zone_id, null, null);
        end if;
        set o_reached_us = timestampdiff(microsecond, v_epoch, v_row_at);
    end if;
end;
