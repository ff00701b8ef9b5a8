-- zone_window_reached: when a bucket's total was first at least so much; not called from outside.
--
-- Reads the ledger as zone_window_before does.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_total       so much
--            p_from_us     it was not before this time
--            p_now_us      when the check is decided, in microseconds since 1970; what was never spent is then
--            p_seq … p_carried_total  the bucket's head, see zone_bucket_hold
--            o_reached_us  the time
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
-- Errors     TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_window_reached;
create procedure zone_window_reached(
    in  p_zone_id       int,
    in  p_bucket_key    varbinary(255),
    in  p_total         bigint,
    in  p_from_us       bigint,
    in  p_now_us        bigint,
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
        call zone_total_reached(p_zone_id, p_bucket_key, p_total, p_from_us - 1, p_last_us, o_reached_us);
    end if;
    if o_reached_us is null then
        set v_row_seq = p_seq + 1;
        set v_row_before = p_spent_total;
        set v_row_prev_at = date_add(v_epoch, interval p_last_us microsecond);
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
