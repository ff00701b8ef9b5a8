-- zone_decide_many: decides N checks into the temporary table zone_decision; not called from outside.
--
-- Runs in the transaction that is open, under READ COMMITTED. The decisions are those of N calls of zone_answer in
-- the order of the checks. Buckets that are not plain (see zone_answer) are decided one check after the other; all
-- others by statements over all their checks, with one reading of the clock. There locks, heads, policies, past
-- decisions, new rows and new heads are one statement each. What a bucket has left to spend is its room, in units of
-- cost: once that is known, its checks go one after the other in a recursion that reads nothing but the batch. Where a
-- window begins and when a charge leaves it is looked up bucket by bucket: neither server seeks in an index to a bound
-- that comes from another table, it would read the whole bucket.
--
-- Arguments  p_checks       as for zone_check_many
--            p_skip_locked  leave out the checks of buckets that somebody else holds
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_answer
drop procedure if exists zone_decide_many;
create procedure zone_decide_many(in p_checks json, in p_skip_locked boolean)
sql security definer
decide: begin
    declare v_now_us      bigint;
    declare v_now         datetime(6);
    declare v_done        boolean default false;
    declare v_repeats     int;
    declare v_past        int;
    declare v_known       int;
    declare v_heads       int;
    declare v_position    int;
    declare v_special     int;
    declare v_bucket      int;
    declare v_zone_id     int;
    declare v_bucket_key  varbinary(255);
    declare v_start_at    datetime(6);
    declare v_must_leave  bigint;
    declare v_leaves_at   datetime(6);
    declare v_before      bigint;
    declare v_no_number    boolean;
    declare c_window cursor for
        select b.bucket, b.zone_id, b.bucket_key, b.start_at
        from zone_batch_bucket b
        where b.room is null and b.per_token is null;
    declare c_wait cursor for
        select w.bucket, w.must_leave, w.zone_id, w.bucket_key, w.start_at
        from zone_batch_wait w;
    declare continue handler for not found set v_done = true;

    -- 1. Read, validate and lock.
    call zone_batch_read(p_checks);
    call zone_batch_lock(p_skip_locked);
    if p_skip_locked then
        insert into zone_decision (position, txn_id, zone_id, bucket_key, cost)
        select c.position, c.txn_id, c.zone_id, c.bucket_key, c.cost
        from zone_batch_check c
        left join zone_batch_head h on h.bucket = c.bucket
        where h.bucket is null;
    end if;
    -- 2. The clock, after the locks. Time never moves backwards within a bucket.
    call zone_clock(v_now_us);
    set v_now = date_add(timestamp'1970-01-01 00:00:00', interval v_now_us microsecond);

    -- 3. Policies, each read once: the version that says whether a bucket is plain decides it too. And what is left to
    --    spend where that can be told at once. A short ledger is read from its beginning.
    select count(*)
    into v_heads
    from zone_batch_head h;
    insert into zone_batch_bucket (
        bucket, checks, zone_id, bucket_key, seq, last_at, spent_total, level, strikes, zone_version, zone_limit,
        window_us, per_us, per_token, now_at, start_at, row_hash, plain, room
    )
    select h.bucket, h.checks, h.zone_id, h.bucket_key, h.seq, h.last_at, h.spent_total, h.level,
        coalesce(h.strikes, 0), h.version, h.zone_limit, h.window_us, h.per_us, h.per_token, h.now_at, h.start_at,
        h.row_hash, h.plain,
        case
            when h.per_token is not null or not h.plain then null
            when h.seq = 0 or h.last_at <= h.start_at then h.zone_limit
            when h.seq <= 16 then h.zone_limit - h.spent_total + (
                select if(
                    t.prev_at > h.start_at,
                    (
                        select d.spent_total
                        from zone_txn_dropped d
                        where d.zone_id = t.zone_id and d.bucket_key = t.bucket_key and d.seq >= t.seq - 1
                    ),
                    t.spent_total - t.spent
                )
                from zone_txn t force index (zone_txn_bucket_uq)
                where t.zone_id = h.zone_id and t.bucket_key = h.bucket_key and t.created_at > h.start_at
                    and t.sealed
                order by t.created_at, t.seq
                limit 1
            )
        end
    from (
        select h.bucket, h.checks, h.zone_id, h.bucket_key, h.seq, h.last_at, h.spent_total, h.level, h.strikes,
            h.row_hash, z.version, coalesce(z.burst, z.rate) as zone_limit, z.window_us,
            if(z.algorithm = 'token-bucket', z.rate div z.rate_gcd, null) as per_us,
            if(z.algorithm = 'token-bucket', z.window_us div z.rate_gcd, null) as per_token,
            greatest(v_now, coalesce(h.last_at, v_now)) as now_at,
            if(
                z.algorithm = 'token-bucket', null,
                date_sub(greatest(v_now, coalesce(h.last_at, v_now)), interval z.window_us microsecond)
            ) as start_at,
            h.plain and z.algorithm in ('sliding-log', 'token-bucket') and z.mode = 'enforce' and z.soft_rate is null
                and z.reserve = 0 and not z.count_blocked and z.ban_after is null
                and coalesce(h.zone_version = z.version, true)
                and not coalesce(h.banned_until > v_now, false)
                and not coalesce(h.carried_at > date_sub(v_now, interval z.window_us microsecond), false) as plain
        from zone_batch_head h
        straight_join zone_master z force index (primary) on z.id = h.zone_id
    ) h;
    set v_known = row_count();
    if v_known < v_heads then
        call zone_batch_refuse(null);
    end if;

    -- 4. Buckets that are not plain go one check after the other.
    insert into zone_batch_special (bucket)
    select b.bucket
    from zone_batch_bucket b
    where not b.plain;
    set v_special = row_count();
    if v_special > 0 then
        call zone_batch_each(false);
        delete c
        from zone_batch_check c
        join zone_batch_special s on s.bucket = c.bucket;
        delete h
        from zone_batch_head h
        join zone_batch_special s on s.bucket = h.bucket;
        delete b
        from zone_batch_bucket b
        join zone_batch_special s on s.bucket = b.bucket;
    end if;
    if v_special = v_heads then
        leave decide;
    end if;

    -- 5. What was decided before.
    insert into zone_batch_past (
        position, id, zone_version, seq, blocked, reason, cost, zone_limit, remaining, retry_after_us, delay_us,
        ends_at, created_at, other_member
    )
    select c.position, t.id, t.zone_version, t.seq, t.blocked, t.reason, t.cost, t.zone_limit, t.remaining,
        t.retry_after_us, t.delay_us, t.ends_at, t.created_at,
        t.kind <> 'unchecked' and t.member is not null
    from zone_batch_check c
    straight_join zone_batch_head h on h.bucket = c.bucket
    straight_join zone_txn t force index (zone_txn_bucket_txn)
        on t.zone_id = c.zone_id and t.bucket_key = c.bucket_key and t.txn_id = c.txn_id
    where c.recorded and h.seq > 0 and t.kind in ('check', 'reserve', 'coalesced', 'unchecked')
        and t.sealed;
    set v_past = row_count();
    if v_past > 0 then
        update zone_batch_check c
        join zone_batch_past p on p.position = c.position
        set c.appends = false;
    end if;

    -- What is left to spend where it takes another look.
    call zone_batch_level();
    open c_window;
    windows: loop
        set v_done = false;
        fetch c_window into v_bucket, v_zone_id, v_bucket_key, v_start_at;
        if v_done then
            leave windows;
        end if;
        set v_before = null;
        select if(
            t.prev_at > v_start_at,
            (
                select d.spent_total
                from zone_txn_dropped d
                where d.zone_id = t.zone_id and d.bucket_key = t.bucket_key and d.seq >= t.seq - 1
            ),
            t.spent_total - t.spent
        )
        into v_before
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = v_zone_id and t.bucket_key = v_bucket_key and t.created_at > v_start_at and t.sealed
        order by t.created_at, t.seq
        limit 1;
        update zone_batch_bucket b
        set b.room = b.zone_limit - b.spent_total + v_before
        where b.bucket = v_bucket;
    end loop;
    close c_window;

    -- 6. Decide. Only where a bucket has several checks do they depend on each other.
    -- As deep as a bucket has checks; MySQL reads the hint and MariaDB the comment.
    /*M! set statement max_recursive_iterations = 4294967295 for */
    insert /*+ set_var(cte_max_recursion_depth = 4294967295) */ into zone_batch_state (position, room, seq)
    with recursive d as (
        select b.bucket, cast(0 as signed) as nth, cast(0 as signed) as position, b.zone_limit, b.room as room_before,
            b.room, b.seq as seq_before, b.seq
        from zone_batch_bucket b
        where b.checks > 1
        union all
        select d.bucket, c.nth, c.position, d.zone_limit, d.room,
            if(c.appends and c.cost <= least(d.zone_limit, d.room), d.room - c.cost, d.room), d.seq, d.seq + c.appends
        from d
        join zone_batch_check c on c.bucket = d.bucket and c.nth = d.nth + 1
    )
    select d.position, d.room_before, d.seq_before
    from d
    where d.nth > 1;
    insert into zone_decision (
        position, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit, remaining,
        retry_after_us, created_at, replayed, bucket, appends, critical, first_of_txn, is_last, spent, spent_total,
        level, strikes, prev_at, start_at, must_leave, head_seq, head_at, head_version
    )
    select d.position,
        coalesce(d.txn_id, unhex(concat(
            lpad(hex(timestampdiff(microsecond, '1970-01-01', d.now_at) div 1000), 12, '0'),
            '7', substring(hex(random_bytes(2)), 2, 3),
            hex(128 + conv(substring(hex(random_bytes(1)), 1, 2), 16, 10) mod 64),
            hex(random_bytes(7))
        ))),
        d.zone_id, d.zone_version, d.bucket_key, if(d.recorded, d.seq_before + 1, null), d.reason <> 'within_limit',
        d.reason, d.cost, d.zone_limit, greatest(d.room_before - d.spent, 0),
        case
            when d.reason = 'over_limit' and d.per_token is not null then
                (d.cost * d.per_token - d.room_before * d.per_token - mod(d.level, d.per_token) + (d.per_us - 1))
                    div d.per_us
            -- What must leave the window was spent in this batch.
            when d.reason = 'over_limit' and d.room - d.room_before + d.cost > d.zone_limit then d.window_us
        end,
        d.now_at, false, d.bucket, d.appends, d.critical, d.first_of_txn, d.is_last, d.spent,
        cast(d.spent_total as unsigned) + (d.room - d.room_before) + d.spent,
        (d.room_before - d.spent) * d.per_token + mod(d.level, d.per_token), d.strikes,
        if(d.seq_before = d.seq, d.last_at, d.now_at),
        d.start_at,
        if(
            d.reason = 'over_limit' and d.per_token is null and d.room - d.room_before + d.cost <= d.zone_limit,
            d.spent_total + (d.room - d.room_before + d.cost - d.zone_limit), null
        ),
        d.seq_before + d.appends, d.now_at, d.zone_version
    from (
        select c.position, c.txn_id, c.zone_id, c.bucket_key, c.cost, c.recorded, c.appends, c.critical,
            c.recorded and c.nth_of_txn = 1 as first_of_txn, c.nth = b.checks as is_last, b.bucket, b.seq, b.last_at,
            b.spent_total, b.level, b.strikes, b.zone_version, b.zone_limit, b.window_us, b.per_us, b.per_token,
            b.now_at, b.start_at, b.room, coalesce(s.room, b.room) as room_before, coalesce(s.seq, b.seq) as seq_before,
            case
                when c.recorded and not c.appends then null
                when b.room is null then null
                when c.cost > b.zone_limit then 'exceeds_limit'
                when c.cost > 0 and c.cost > coalesce(s.room, b.room) then 'over_limit'
                else 'within_limit'
            end as reason,
            if(c.appends and c.cost <= least(b.zone_limit, coalesce(s.room, b.room)), c.cost, 0) as spent
        from zone_batch_check c
        straight_join zone_batch_bucket b on b.bucket = c.bucket
        left join zone_batch_state s on s.position = c.position
    ) d;

    -- 7. The exact waits: the first charge by which enough had been spent; once it has left the window, the cost
    --    fits.
    insert into zone_batch_wait (bucket, must_leave, zone_id, bucket_key, start_at)
    select d.bucket, d.must_leave, min(d.zone_id), min(d.bucket_key), min(d.start_at)
    from zone_decision d
    where d.must_leave is not null
    group by d.bucket, d.must_leave;
    if row_count() > 0 then
        open c_wait;
        waits: loop
            set v_done = false;
            fetch c_wait into v_bucket, v_must_leave, v_zone_id, v_bucket_key, v_start_at;
            if v_done then
                leave waits;
            end if;
            set v_leaves_at = null;
            select if(t.spent_total - t.spent >= v_must_leave, null, t.created_at)
            into v_leaves_at
            from zone_txn t force index (zone_txn_spent)
            where t.zone_id = v_zone_id and t.bucket_key = v_bucket_key and t.spent_total >= v_must_leave
                and t.sealed
            order by t.spent_total, t.seq
            limit 1;
            update zone_batch_wait w
            set w.wait_us = timestampdiff(microsecond, v_start_at, v_leaves_at)
            where w.bucket = v_bucket and w.must_leave = v_must_leave;
        end loop;
        close c_wait;
        update zone_decision d
        join zone_batch_wait w on w.bucket = d.bucket and w.must_leave = d.must_leave
        set d.retry_after_us = w.wait_us;
    end if;

    -- 8. Answer again what was decided before, in the ledger or earlier in the batch.
    if v_past > 0 then
        call zone_batch_replay();
    end if;
    select count(*)
    into v_repeats
    from zone_batch_check c
    where c.recorded and c.nth_of_txn > 1 and c.txn_id is not null;
    if v_repeats > 0 then
        delete from zone_batch_past;
        insert into zone_batch_past (
            position, zone_version, seq, blocked, reason, cost, zone_limit, remaining, retry_after_us, created_at
        )
        select c.position, d.zone_version, d.seq, d.blocked, d.reason, d.cost, d.zone_limit, d.remaining,
            d.retry_after_us, d.created_at
        from zone_batch_check c
        straight_join zone_decision d force index (zone_decision_txn) on d.bucket = c.bucket and d.txn_id = c.txn_id
        where c.recorded and c.nth_of_txn > 1 and d.first_of_txn;
        call zone_batch_replay();
    end if;

    -- 9. Refuse what cannot be recorded, or was changed from outside.
    select min(d.position)
    into v_position
    from zone_decision d
    where d.reason is null and d.appends is not null
        or d.reason = 'over_limit' and d.retry_after_us is null and not d.replayed
        or d.appends and d.spent_total > 9223372036854775807;
    if v_position is not null then
        call zone_batch_refuse(v_position);
    end if;

    -- 10. Chain, append, and move the heads.
    /*M! set statement max_recursive_iterations = 4294967295 for */
    insert /*+ set_var(cte_max_recursion_depth = 4294967295) */ into zone_batch_hash (
        position, bucket, seq, row_hash
    )
    with recursive h as (
        select b.bucket, b.seq, cast(0 as signed) as position, b.row_hash
        from zone_batch_bucket b
        union all
        select h.bucket, h.seq + 1, d.position, unhex(sha2(unhex(concat(
            hex(h.row_hash), hex(d.txn_id), lpad(hex(d.seq), 16, '0'), lpad(hex(d.zone_version), 8, '0'), '00000001',
            if(d.blocked, '01', '00'), if(d.critical, '01', '00'), lpad(hex(d.cost), 16, '0'),
            lpad(hex(d.spent), 16, '0'), lpad(hex(d.spent_total), 16, '0'), lpad(hex(d.remaining), 16, '0'),
            lpad(hex(d.zone_limit), 16, '0'), coalesce(lpad(hex(d.retry_after_us), 16, '0'), '8000000000000000'),
            '8000000000000000', coalesce(lpad(hex(d.level), 16, '0'), '8000000000000000'),
            lpad(hex(d.strikes), 16, '0'), '8000000000000000',
            lpad(hex(timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', d.created_at)), 16, '0'),
            '8000000000000000', hex('check|'), hex(d.reason), '0000000000'
        )), 256))
        from h
        join zone_decision d force index (zone_decision_seq)
            on d.bucket = h.bucket and d.head_seq = h.seq + 1 and d.appends
    )
    select h.position, h.bucket, h.seq, h.row_hash
    from h
    where h.position > 0;
    -- See zone_record.
    if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
        call zone_error('insert id', @@session.insert_id, null, null);
    end if;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, critical, cost, spent, spent_total,
        remaining, zone_limit, retry_after_us, level, strikes, created_at, prev_at, salt, row_hash,
        sealed
    )
    select d.txn_id, d.zone_id, d.zone_version, d.bucket_key, d.seq, 'check', d.blocked, d.reason, d.critical, d.cost,
        d.spent, d.spent_total, d.remaining, d.zone_limit, d.retry_after_us, d.level, d.strikes, d.created_at, d.prev_at,
        if(
            d.seq = 1,
            (select b.salt from zone_bucket_lock b where b.zone_id = d.zone_id and b.bucket_key = d.bucket_key), null
        ),
        h.row_hash, false
    from zone_decision d
    straight_join zone_batch_hash h on h.position = d.position
    where d.appends
    order by d.position;
    -- The heads as they will be, and then all rows and heads in one statement, see zone_record.
    update zone_decision d
    straight_join zone_batch_hash h force index (zone_batch_hash_seq) on h.bucket = d.bucket and h.seq = d.head_seq
    straight_join zone_batch_bucket b on b.bucket = d.bucket
    set b.seq = d.head_seq,
        b.last_at = d.head_at,
        b.spent_total = d.spent_total,
        b.level = d.level,
        b.zone_version = d.head_version,
        b.row_hash = h.row_hash
    where d.is_last;
    update zone_decision d
    straight_join zone_batch_bucket h on h.bucket = d.bucket
    straight_join zone_bucket_lock b force index (primary) on b.zone_id = d.zone_id and b.bucket_key = d.bucket_key
    straight_join zone_txn t force index (zone_txn_bucket_uq)
        on t.zone_id = d.zone_id and t.bucket_key = d.bucket_key and t.created_at = d.created_at and t.seq = d.seq
    set t.sealed = true,
        b.seq = h.seq,
        b.last_at = h.last_at,
        b.spent_total = h.spent_total,
        b.level = h.level,
        b.zone_version = h.zone_version,
        b.row_hash = h.row_hash
    where d.appends;
    update zone_decision d
    set d.id = (
        select t.id
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = d.zone_id and t.bucket_key = d.bucket_key and t.created_at = d.created_at and t.seq = d.seq
    )
    where d.seq is not null and d.id is null;
    select min(d.id) = 0
    into v_no_number
    from zone_decision d;
    if v_no_number then
        call zone_error('insert id', 0, null, null);
    end if;
end;
