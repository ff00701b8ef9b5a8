-- zone_decide: decides one check and records it; the heart of the routines, not called from outside.
--
-- Runs in the transaction that is open. Reads of the ledger do not lock, so that no gap between its rows is
-- ever locked. Under READ COMMITTED they see every row of the locked bucket. A caller's older snapshot may
-- lack the newest ones; prev_at shows where it does, and those rows are then fetched one by one, newest
-- first, by point reads that lock the row and nothing beside it. Each range read names its index: without
-- statistics of a bucket the optimizer may hold sorting the whole range for as cheap as its first row.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id      the transaction; null makes a version 7 UUID
--            p_cost        what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_fresh       the caller just made p_txn_id, so it need not be looked for
--            p_record      leave a row even for a peek
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_checks      null: an ordinary check. Else so many checks which were answered blocked from
--                          memory are recorded as one row: nothing is decided or spent
-- Result     o_*: the columns of a decision, see zone_check
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG002 (31002) the transaction was decided with another
--            cost; TG003 (31003) a value is out of range; TG004 (31004) the bucket's total is full;
--            TG005 (31005) the ledger lacks rows of the window
drop procedure if exists zone_decide;
create procedure zone_decide(
    in    p_zone_id        int,
    in    p_bucket_key     varchar(4000) character set utf8mb4,
    inout p_txn_id         binary(16),
    in    p_cost           bigint,
    in    p_fresh          boolean,
    in    p_record         boolean,
    in    p_joined         boolean,
    in    p_checks         int,
    out   o_id             bigint,
    out   o_zone_version   int,
    out   o_seq            bigint,
    out   o_blocked        boolean,
    out   o_reason         varchar(20) character set ascii,
    out   o_zone_limit     bigint,
    out   o_remaining      bigint,
    out   o_retry_after_us bigint,
    out   o_created_at     datetime(6),
    out   o_replayed       boolean
)
sql security definer
decide: begin
    declare v_recorded     boolean default p_cost > 0 or coalesce(p_record, false) or p_checks is not null;
    -- What is decided about: where nothing is, only the bucket's state is brought to now.
    declare v_cost         bigint default if(p_checks is null, p_cost, 0);
    -- When the call began; not the time of the decision, which is read after the lock.
    declare v_asked_at     datetime(6) default timestamp(utc_date(), utc_time(6));
    declare v_key          varbinary(4000) default cast(p_bucket_key as binary);
    declare v_found        boolean default true;
    declare v_message      varchar(128); -- the longest that a signal can carry
    -- the bucket's head
    declare v_seq          bigint default 0;
    declare v_last_at      datetime(6);
    declare v_spent_total  bigint default 0;
    declare v_level        bigint;
    declare v_head_version int;
    -- the policy
    declare v_version      int;
    declare v_algorithm    varchar(20) character set ascii;
    declare v_limit        bigint;
    declare v_window_us    bigint;
    declare v_per_us       bigint;
    declare v_per_token    bigint;
    -- the decision
    declare v_now          datetime(6);
    declare v_start        datetime(6);
    declare v_base         bigint;
    declare v_missing      bigint;
    declare v_elapsed_us   bigint;
    declare v_must_leave   bigint;
    declare v_reached_at   datetime(6);
    declare v_spent        bigint default 0;
    -- a row of the ledger
    declare v_row_seq      bigint;
    declare v_row_at       datetime(6);
    declare v_row_prev_at  datetime(6);
    declare v_row_before   bigint;
    declare v_row_cost     bigint;
    declare v_seen_seq     bigint default 0;
    declare v_past_id      bigint;
    declare continue handler for not found set v_found = false;

    -- 1. Validate. Key and zone are looked at when the bucket's row is made: where it exists, they are good.
    if p_cost is null or p_cost not between 0 and 1099511627776 then
        set v_message = concat('cost ', coalesce(p_cost, 'null'), ' is out of range; use 0 to 1099511627776');
        signal sqlstate 'TG003' set mysql_errno = 31003, message_text = v_message;
    end if;
    if p_txn_id = repeat(x'00', 16) then
        signal sqlstate 'TG003'
            set mysql_errno = 31003, message_text = 'the nil UUID names no transaction; use a version 4 or 7 UUID';
    end if;
    if p_checks < 1 then
        set v_message = concat('a row cannot stand for ', p_checks, ' checks; use 1 to 2147483647');
        signal sqlstate 'TG003' set mysql_errno = 31003, message_text = v_message;
    end if;

    -- 2. Lock the bucket. A peek only looks. Where the isolation level is not ours to choose, looking for a
    --    row that is not there would lock a gap, so there the row is made first.
    if v_recorded then
        if p_joined then
            call zone_bucket_open(p_zone_id, p_bucket_key);
        end if;
        hold: loop
            set v_found = true;
            select b.seq, b.last_at, b.spent_total, b.level, b.zone_version
            into v_seq, v_last_at, v_spent_total, v_level, v_head_version
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key
            for update;
            if v_found then
                leave hold;
            end if;
            call zone_bucket_open(p_zone_id, p_bucket_key);
        end loop;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.zone_version
        into v_seq, v_last_at, v_spent_total, v_level, v_head_version
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key;
    end if;

    -- 3. The clock, after the lock and as a statement of its own; the session's own idea of the time is
    --    dropped first. Time never moves backwards within a bucket.
    set timestamp = default;
    set v_now = utc_timestamp(6);
    if v_last_at > v_now then
        set v_now = v_last_at;
    end if;

    -- 4. Policy and ledger, each by a statement that began after the lock.
    set v_found = true;
    select z.version, z.algorithm, coalesce(z.burst, z.rate), z.window_us, z.rate div z.rate_gcd,
        z.window_us div z.rate_gcd
    into v_version, v_algorithm, v_limit, v_window_us, v_per_us, v_per_token
    from zone_master z
    where z.id = p_zone_id;
    if v_head_version > v_version then
        -- The snapshot shows an older policy than the bucket was decided by.
        select z.version, z.algorithm, coalesce(z.burst, z.rate), z.window_us, z.rate div z.rate_gcd,
            z.window_us div z.rate_gcd
        into v_version, v_algorithm, v_limit, v_window_us, v_per_us, v_per_token
        from zone_master z
        where z.id = p_zone_id
        lock in share mode;
    end if;
    if not v_found then
        set v_message = concat('there is no zone ', coalesce(p_zone_id, 'null'), '; list them with: tallygate zone list');
        signal sqlstate 'TG001' set mysql_errno = 31001, message_text = v_message;
    end if;
    set o_zone_limit = v_limit;

    if p_txn_id is null then
        set p_txn_id = unhex(concat(
            lpad(hex(timestampdiff(microsecond, '1970-01-01', v_now) div 1000), 12, '0'),
            '7', substring(hex(random_bytes(2)), 2, 3),
            hex(128 + conv(substring(hex(random_bytes(1)), 1, 2), 16, 10) mod 64),
            hex(random_bytes(7))
        ));
    elseif v_recorded and v_seq > 0
        -- A new id needs no look, unless somebody decided while this call waited: that may have been a second
        -- attempt of the same check, whose first one lost its caller.
        and not (coalesce(p_fresh, false) and v_last_at < v_asked_at)
    then
        set v_found = true;
        select t.id, t.cost, t.zone_version, t.seq, t.blocked, t.reason, t.remaining, t.retry_after_us, t.created_at
        into v_past_id, v_row_cost, o_zone_version, o_seq, o_blocked, o_reason, o_remaining, o_retry_after_us,
            o_created_at
        from zone_txn t force index (zone_txn_bucket_txn)
        where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id;
        if not v_found and p_joined then
            -- Rows that the snapshot cannot show: from the newest back to the newest that it can.
            select b.seq
            into v_seen_seq
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key;
            set v_row_seq = v_seq;
            set v_row_at = v_last_at;
            unseen: while v_row_seq > v_seen_seq do
                select t.prev_at, if(t.txn_id = p_txn_id, t.id, null), t.cost, t.zone_version, t.blocked, t.reason,
                    t.remaining, t.retry_after_us
                into v_row_prev_at, v_past_id, v_row_cost, o_zone_version, o_blocked, o_reason, o_remaining,
                    o_retry_after_us
                from zone_txn t
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq
                lock in share mode;
                if v_past_id is not null then
                    set o_seq = v_row_seq;
                    set o_created_at = v_row_at;
                    leave unseen;
                end if;
                set v_row_seq = v_row_seq - 1;
                set v_row_at = v_row_prev_at;
            end while;
        end if;
        if v_past_id is not null then
            if v_row_cost <> p_cost then
                set v_message = lower(concat_ws('-', hex(substring(p_txn_id, 1, 4)), hex(substring(p_txn_id, 5, 2)),
                    hex(substring(p_txn_id, 7, 2)), hex(substring(p_txn_id, 9, 2)), hex(substring(p_txn_id, 11))));
                set v_message = concat(
                    'transaction ', v_message, ' was decided with cost ', v_row_cost, ', not ', p_cost, '; use a new id'
                );
                signal sqlstate 'TG002' set mysql_errno = 31002, message_text = v_message;
            end if;
            set o_id = v_past_id;
            set o_replayed = true;
            select coalesce(v.burst, v.rate)
            into o_zone_limit
            from zone_version v
            where v.zone_id = p_zone_id and v.version = o_zone_version
            lock in share mode;
            leave decide;
        end if;
    end if;

    -- 5. Decide.
    set o_reason = 'within_limit';
    set o_retry_after_us = null;
    if v_algorithm = 'token-bucket' then
        set v_start = v_last_at;
        if v_head_version < v_version then
            call zone_level_carry(p_zone_id, v_head_version, v_version, v_level, v_start, v_now);
        end if;
        if v_level is null then
            set v_level = v_limit * v_per_token;
        else
            set v_missing = v_limit * v_per_token - v_level;
            set v_elapsed_us = timestampdiff(microsecond, v_start, v_now);
            if v_missing <= 0 or v_elapsed_us >= (v_missing + (v_per_us - 1)) div v_per_us then
                set v_level = v_limit * v_per_token;
            else
                set v_level = v_level + v_elapsed_us * v_per_us;
            end if;
        end if;
        if v_cost > v_limit then
            set o_reason = 'exceeds_limit';
        elseif v_cost * v_per_token > v_level then
            set o_reason = 'over_limit';
            set o_retry_after_us = (v_cost * v_per_token - v_level + (v_per_us - 1)) div v_per_us;
        else
            set v_level = v_level - v_cost * v_per_token;
            set v_spent = v_cost;
        end if;
        set o_remaining = v_level div v_per_token;
    else
        set v_level = null;
        set v_start = date_sub(v_now, interval v_window_us microsecond);
        set v_base = v_spent_total;
        if v_seq > 0 and v_last_at > v_start then
            -- The window's first row, as far as the snapshot shows it; else the row that comes now.
            set v_row_seq = v_seq + 1;
            set v_row_before = v_spent_total;
            set v_row_prev_at = v_last_at;
            select t.seq, t.spent_total - t.spent, t.prev_at
            into v_row_seq, v_row_before, v_row_prev_at
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at > v_start
            order by t.created_at, t.seq
            limit 1;
            -- From there back over rows of the window that the snapshot does not show.
            set v_found = true;
            while v_found and v_row_prev_at > v_start do
                set v_row_seq = v_row_seq - 1;
                set v_row_at = v_row_prev_at;
                select t.spent_total - t.spent, t.prev_at
                into v_row_before, v_row_prev_at
                from zone_txn t
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq
                lock in share mode;
            end while;
            if not v_found then
                set v_message = concat(
                    'the ledger of a bucket in zone ', p_zone_id, ' lacks rows of its window; it was changed from outside'
                );
                signal sqlstate 'TG005' set mysql_errno = 31005, message_text = v_message;
            end if;
            set v_base = v_row_before;
        end if;
        set o_remaining = greatest(v_limit - (v_spent_total - v_base), 0);
        if v_cost > v_limit then
            set o_reason = 'exceeds_limit';
        elseif v_spent_total - v_base > v_limit - v_cost then
            set o_reason = 'over_limit';
            -- The first charge by which enough had been spent; once it has left the window, the cost fits.
            set v_must_leave = v_spent_total - v_limit + v_cost;
            set v_row_seq = v_seq + 1;
            set v_row_before = v_spent_total;
            set v_row_prev_at = v_last_at;
            select t.seq, t.spent_total - t.spent, t.created_at, t.prev_at
            into v_row_seq, v_row_before, v_row_at, v_row_prev_at
            from zone_txn t force index (zone_txn_spent)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.spent_total >= v_must_leave
            order by t.spent_total, t.seq
            limit 1;
            set v_found = true;
            while v_found and v_row_before >= v_must_leave do
                set v_row_seq = v_row_seq - 1;
                set v_row_at = v_row_prev_at;
                select t.spent_total - t.spent, t.prev_at
                into v_row_before, v_row_prev_at
                from zone_txn t
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq
                lock in share mode;
            end while;
            if not v_found then
                set v_message = concat(
                    'the ledger of a bucket in zone ', p_zone_id, ' lacks rows of its window; it was changed from outside'
                );
                signal sqlstate 'TG005' set mysql_errno = 31005, message_text = v_message;
            end if;
            set o_retry_after_us = timestampdiff(microsecond, v_start, v_row_at);
        else
            set o_remaining = o_remaining - v_cost;
            set v_spent = v_cost;
        end if;
    end if;
    if p_checks is not null then
        set o_reason = 'over_limit';
        set o_retry_after_us = null;
    end if;

    -- 6. Append, and move the head.
    set o_blocked = o_reason <> 'within_limit';
    set o_zone_version = v_version;
    set o_created_at = v_now;
    set o_replayed = false;
    set o_id = null;
    set o_seq = null;
    if v_recorded then
        if v_spent_total > 9223372036854775807 - v_spent then
            set v_message = concat('the bucket has spent ', v_spent_total, ' in all and cannot count ', v_spent, ' more');
            signal sqlstate 'TG004' set mysql_errno = 31004, message_text = v_message;
        end if;
        set o_seq = v_seq + 1;
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, cost, spent,
            spent_total, remaining, retry_after_us, level, created_at, prev_at
        )
        values (
            p_txn_id, p_zone_id, v_version, v_key, o_seq, if(p_checks is null, 'check', 'coalesced'),
            coalesce(p_checks, 1), o_blocked, o_reason, p_cost, v_spent, v_spent_total + v_spent, o_remaining,
            o_retry_after_us, v_level, v_now, v_last_at
        );
        set o_id = last_insert_id();
        update zone_bucket_lock b
        set b.seq = o_seq,
            b.last_at = v_now,
            b.spent_total = v_spent_total + v_spent,
            b.level = v_level,
            b.zone_version = v_version
        where b.zone_id = p_zone_id and b.bucket_key = v_key;
    end if;
end;
