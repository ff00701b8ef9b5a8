-- zone_txn_find: finds what a transaction did to a bucket before; not called from outside.
--
-- The bucket's lock is held. A caller's older snapshot may lack the newest rows: those are looked at one by one,
-- newest first, by point reads that lock the row and nothing beside it.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_txn_id      the transaction
--            p_kinds       the kinds of rows to look for, with commas between them
--            p_seq         seq of the bucket's last row
--            p_last_us     its created_at, in microseconds since 1970
--            p_joined      the transaction is the caller's and may be of any isolation level
--            o_*           the row; o_id is null when there is none
-- Locks      the rows that the caller's snapshot does not show, shared, until the transaction ends
drop procedure if exists zone_txn_find;
create procedure zone_txn_find(
    in  p_zone_id        int,
    in  p_bucket_key     varbinary(255),
    in  p_txn_id         binary(16),
    in  p_kinds          varchar(100) character set ascii,
    in  p_seq            bigint,
    in  p_last_us        bigint,
    in  p_joined         boolean,
    out o_id             bigint,
    out o_kind           varchar(20) character set ascii,
    out o_zone_version   int,
    out o_seq            bigint,
    out o_blocked        boolean,
    out o_reason         varchar(20) character set ascii,
    out o_cost           bigint,
    out o_spent          bigint,
    out o_zone_limit     bigint,
    out o_remaining      bigint,
    out o_retry_after_us bigint,
    out o_delay_us       bigint,
    out o_ends_at        datetime(6),
    out o_created_at     datetime(6),
    out o_member         varbinary(255)
)
sql security definer
find: begin
    declare v_found       boolean default true;
    declare v_seen_seq    bigint default 0;
    declare v_row_seq     bigint;
    declare v_row_at      datetime(6);
    declare v_row_prev_at datetime(6);
    declare continue handler for not found set v_found = false;
    select t.id, t.kind, t.zone_version, t.seq, t.blocked, t.reason, t.cost, t.spent, t.zone_limit, t.remaining,
        t.retry_after_us, t.delay_us, t.ends_at, t.created_at, t.member
    into o_id, o_kind, o_zone_version, o_seq, o_blocked, o_reason, o_cost, o_spent, o_zone_limit, o_remaining,
        o_retry_after_us, o_delay_us, o_ends_at, o_created_at, o_member
    from zone_txn t force index (zone_txn_bucket_txn)
    where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.txn_id = p_txn_id
        and find_in_set(t.kind, p_kinds) and t.sealed
    limit 1;
    if v_found or not p_joined then
        leave find;
    end if;
    -- Rows that the snapshot cannot show: from the newest back to the newest that it can.
    select b.seq
    into v_seen_seq
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    set v_row_seq = p_seq;
    set v_row_at = date_add(timestamp'1970-01-01 00:00:00', interval p_last_us microsecond);
    unseen: while v_row_seq > v_seen_seq do
        select t.prev_at, if(t.txn_id = p_txn_id and find_in_set(t.kind, p_kinds), t.id, null), t.kind, t.zone_version,
            t.seq, t.blocked, t.reason, t.cost, t.spent, t.zone_limit, t.remaining, t.retry_after_us, t.delay_us,
            t.ends_at, t.created_at, t.member
        into v_row_prev_at, o_id, o_kind, o_zone_version, o_seq, o_blocked, o_reason, o_cost, o_spent, o_zone_limit,
            o_remaining, o_retry_after_us, o_delay_us, o_ends_at, o_created_at, o_member
        from zone_txn t
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = v_row_at and t.seq = v_row_seq
        lock in share mode;
        if o_id is not null then
            leave unseen;
        end if;
        set v_row_seq = v_row_seq - 1;
        set v_row_at = v_row_prev_at;
    end while;
end;
