-- zone_record: appends a row to a bucket's ledger, with the ban that it brings about, and moves the head; not called
-- from outside.
--
-- The part of a check's charge that ends by itself is held from now on. A settlement teaches what requests of its shape
-- cost, which is its p_member.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, whose lock is held
--            p_txn_id      the transaction
--            p_kind … p_member  the row; see zone_txn. Times are microseconds since 1970; those after the year 9999
--                          are kept as its end
--            p_back        how much ends now of the charge of p_target_us, which is row p_back_seq; null for no such
--            p_ban_us      when the ban ends that the check brings about; null for none
--            p_prev_seq    the row before: its seq
--            p_prev_us     its created_at
--            p_banned_us … p_holding  the bucket's next head, see zone_bucket_hold
--            p_salt, p_row_hash  the bucket's chain before the row
--            o_id          number of the row; null where it was killed, see zone_bring
-- Locks      nothing more
-- Errors     TG003 (31003) the session has set insert_id
drop procedure if exists zone_record;
create procedure zone_record(
    in  p_zone_id        int,
    in  p_bucket_key     varbinary(255),
    in  p_txn_id         binary(16),
    in  p_kind           varchar(20) character set ascii,
    in  p_checks         int,
    in  p_blocked        boolean,
    in  p_reason         varchar(20) character set ascii,
    in  p_critical       boolean,
    in  p_cost           bigint,
    in  p_spent          bigint,
    in  p_spent_total    bigint,
    in  p_remaining      bigint,
    in  p_zone_limit     bigint,
    in  p_retry_after_us bigint,
    in  p_delay_us       bigint,
    in  p_level          bigint,
    in  p_strikes        bigint,
    in  p_target_us      bigint,
    in  p_back           bigint,
    in  p_back_seq       bigint,
    in  p_now_us         bigint,
    in  p_ends_us        bigint,
    in  p_member         varbinary(255),
    in  p_ban_us         bigint,
    in  p_prev_seq       bigint,
    in  p_prev_us        bigint,
    in  p_zone_version   int,
    in  p_banned_us      bigint,
    in  p_bans           int,
    in  p_ban_strikes    bigint,
    in  p_carried        bigint,
    in  p_carried_us     bigint,
    in  p_carried_total  bigint,
    in  p_carried_seq    bigint,
    in  p_override_seq   bigint,
    in  p_holding        boolean,
    in  p_salt           binary(16),
    in  p_row_hash       binary(32),
    out o_id             bigint
)
sql security definer
begin
    declare v_epoch   datetime default timestamp'1970-01-01 00:00:00';
    declare v_last_us bigint default 253402300799999999;
    declare v_now     datetime(6) default date_add(v_epoch, interval p_now_us microsecond);
    declare v_target  datetime(6) default date_add(v_epoch, interval p_target_us microsecond);
    declare v_ends_at datetime(6) default date_add(v_epoch, interval least(p_ends_us, v_last_us) microsecond);
    declare v_holds   boolean default p_ends_us is not null and p_kind in ('check', 'reserve');
    declare v_hold    bigint default if(v_holds, p_prev_seq + 1, p_back_seq);
    declare v_done    boolean default false;
    declare v_seq     bigint;
    declare v_shapes  text character set utf8mb4;
    declare v_hash    binary(32);
    declare v_id      bigint;
    declare v_ban_id  bigint;
    declare c_ended cursor for
        select h.seq
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.ends_at <= v_now;
    declare continue handler for not found set v_done = true;
    call zone_txn_hash(
        p_row_hash, p_txn_id, p_prev_seq + 1, p_zone_version, p_checks, p_blocked, p_critical, p_cost, p_spent,
        p_spent_total, p_remaining, p_zone_limit, p_retry_after_us, p_delay_us, p_level, p_strikes, p_target_us,
        p_now_us, least(p_ends_us, v_last_us), p_kind, p_reason,
        concat(coalesce(concat(x'01', unhex(sha2(concat(p_salt, p_member), 256))), x'00'), x'00000000'), v_hash
    );
    -- Rows number themselves. A number that the session has set would be taken, and from the largest on there is none.
    if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
        call zone_error('insert id', @@session.insert_id, null, null);
    end if;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent,
        spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at,
        ends_at, member, salt, row_hash, sealed
    )
    values (
        p_txn_id, p_zone_id, p_zone_version, p_bucket_key, p_prev_seq + 1, p_kind, p_checks, p_blocked, p_reason,
        p_critical, p_cost, p_spent, p_spent_total, p_remaining, p_zone_limit, p_retry_after_us, p_delay_us, p_level,
        p_strikes, v_target, v_now,
        date_add(v_epoch, interval p_prev_us microsecond), v_ends_at, p_member,
        if(p_prev_seq = 0, p_salt, null), v_hash, false
    );
    set v_id = last_insert_id();
    set v_ban_id = v_id;
    -- MySQL takes 0 too, and does not tell it beforehand.
    if v_id = 0 then
        call zone_error('insert id', 0, null, null);
    end if;
    if p_ban_us is not null then
        call zone_txn_hash(
            v_hash, p_txn_id, p_prev_seq + 2, p_zone_version, 1, false, false, 0, 0, p_spent_total, 0, p_zone_limit,
            null, null, p_level, p_strikes, null, p_now_us, least(p_ban_us, v_last_us), 'ban', 'recorded',
            x'0000000000', v_hash
        );
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
            zone_limit, level, strikes, created_at, prev_at, ends_at, row_hash, sealed
        )
        values (
            p_txn_id, p_zone_id, p_zone_version, p_bucket_key, p_prev_seq + 2, 'ban', false, 'recorded', 0, 0,
            p_spent_total, 0, p_zone_limit, p_level, p_strikes, v_now, v_now,
            date_add(v_epoch, interval least(p_ban_us, v_last_us) microsecond), v_hash, false
        );
        set v_ban_id = last_insert_id();
    end if;
    if v_holds then
        if p_kind = 'check' then
            -- Of members and slots only those count that have not ended. Removed one by one: to remove a range would
            -- lock the gap beside it, under a joined caller's isolation.
            open c_ended;
            clear: loop
                fetch c_ended into v_seq;
                if v_done then
                    leave clear;
                end if;
                delete from zone_hold
                where zone_id = p_zone_id and bucket_key = p_bucket_key and seq = v_seq;
            end loop;
            close c_ended;
        end if;
        -- It has ended already, until the row is sealed.
        insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at, member)
        values (p_zone_id, p_bucket_key, p_prev_seq + 1, v_now, 0, v_now, p_member)
        on duplicate key update charged_at = v_now, amount = 0, ends_at = v_now, member = p_member;
    elseif p_back_seq is not null then
        insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at)
        values (p_zone_id, p_bucket_key, p_back_seq, v_target, 0, v_target)
        on duplicate key update amount = zone_hold.amount;
    end if;
    if p_kind = 'settle' and p_member is not null then
        -- As it is now, whatever the caller's snapshot shows: the row is locked.
        select b.shapes
        into v_shapes
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
        for update;
        call zone_learn(v_shapes, p_member, p_cost, p_now_us, v_shapes);
    end if;
    -- One statement: a routine that is killed before it has written nothing that counts, and after it all of it.
    -- Rows by their primary keys: by another index MariaDB locks the gap beside, under a joined caller's isolation.
    update zone_bucket_lock b
    straight_join zone_txn t force index (primary) on t.id in (v_id, v_ban_id) and t.created_at = v_now
    left join zone_hold h force index (primary)
        on h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.seq = v_hold
    set t.sealed = true,
        h.amount = if(v_holds, p_spent, p_back),
        h.ends_at = if(v_holds, v_ends_at, v_now),
        b.seq = p_prev_seq + 1 + (p_ban_us is not null),
        b.last_at = v_now,
        b.spent_total = p_spent_total,
        b.level = p_level,
        b.zone_version = p_zone_version,
        b.strikes = p_strikes,
        b.banned_until = date_add(v_epoch, interval least(p_banned_us, v_last_us) microsecond),
        b.bans = p_bans,
        b.ban_strikes = p_ban_strikes,
        b.carried = p_carried,
        b.carried_at = date_add(v_epoch, interval p_carried_us microsecond),
        b.carried_total = p_carried_total,
        b.carried_seq = p_carried_seq,
        b.override_seq = p_override_seq,
        b.holding = p_holding or v_holds,
        b.shapes = coalesce(v_shapes, b.shapes),
        b.row_hash = v_hash
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    set o_id = v_id;
end;
