-- zone_decide: decides one check of a plain zone and records it, or gives a charge back; not called from outside.
--
-- The same decision, row and hash as the library's, see docs/chain.md. Runs in the transaction that is open. Reads with a limit stand
-- in derived tables for the reason that zone_engine_ask tells.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id      the transaction; null makes a version 7 UUID
--            p_cost, p_record  as in zone_check
--            p_joined      the transaction is the caller's and may be of any isolation level
--            p_by_sql      a caller in SQL asks: the bucket remembers it
--            p_named       the transaction may have been decided before
--            p_back, p_back_seq, p_back_us  a charge that is given back: its amount, row and time; null for a check. A refund costs
--                          0, and its caller has looked for an earlier one under the bucket's lock
--            o_…           columns of the decision, see zone_check; total, level, strikes, salt and row_hash of the bucket after the
--                          row; o_simple where nothing else is to be known of it, and its time is the clock's
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_check_in, but for TG006
drop procedure if exists zone_decide;
create procedure zone_decide(
    in    p_zone_id        int,
    in    p_bucket_key     varchar(4000) character set utf8mb4,
    inout p_txn_id         varbinary(100),
    in    p_cost           bigint,
    in    p_record         boolean,
    in    p_joined         boolean,
    in    p_by_sql         boolean,
    in    p_named          boolean,
    in    p_back           bigint,
    in    p_back_seq       bigint,
    in    p_back_us        bigint,
    out   o_id             bigint,
    out   o_zone_version   int,
    out   o_seq            bigint,
    out   o_blocked        boolean,
    out   o_reason         varchar(20) character set ascii,
    out   o_zone_limit     bigint,
    out   o_remaining      bigint,
    out   o_retry_after_us bigint,
    out   o_created_at     datetime(6),
    out   o_replayed       boolean,
    out   o_total          bigint,
    out   o_level          bigint,
    out   o_strikes        bigint,
    out   o_salt           binary(16),
    out   o_row_hash       binary(32),
    out   o_simple         boolean
)
sql security definer
decide: begin
    declare v_recorded      boolean default p_cost > 0 or coalesce(p_record, false);
    declare v_kind          varchar(20) character set ascii default if(p_back is null, 'check', 'refund');
    declare v_key           varbinary(4000) default cast(p_bucket_key as binary);
    declare v_epoch         datetime default timestamp'1970-01-01 00:00:00';
    declare v_now_us        bigint;
    declare v_ahead_us      bigint default 0; -- how long before v_now_us it is
    declare v_now           datetime(6);
    -- the bucket's head, as far as it is not in the answer
    declare v_seq           bigint;
    declare v_seen          bigint;
    declare v_last_us       bigint;
    declare v_last_at       datetime(6);
    declare v_head_version  int;
    declare v_banned_us     bigint;
    declare v_carried       bigint;
    declare v_carried_us    bigint;
    declare v_carried_total bigint;
    declare v_carried_seq   bigint;
    declare v_override_seq  bigint;
    declare v_holding       boolean default false;
    declare v_bans          bigint;
    declare v_moved_to      varchar(64) character set utf8mb4;
    declare v_home          varchar(63) character set ascii;
    -- the policy
    declare v_algorithm     varchar(20) character set ascii;
    declare v_window_us     bigint;
    declare v_per_us        bigint;
    declare v_per_token     bigint;
    declare v_off           boolean;
    declare v_beyond        varchar(20) character set ascii;
    -- the decision
    declare v_used          bigint;
    declare v_level         bigint;
    declare v_spent         bigint default 0;
    declare v_other         varchar(20) character set ascii;
    declare v_given         decimal(65);
    declare v_hold          bigint default p_back_seq;
    declare v_back_at       datetime(6) default date_add(v_epoch, interval p_back_us microsecond);
    declare continue handler for not found begin end;

    -- A session that keeps no warning would keep from every handler that nothing was found.
    if @@session.max_error_count = 0 then
        set max_error_count = 64;
    end if;
    -- 1. Validate. Key and zone are looked at when the bucket's row is made: where it exists, they are good.
    if p_cost is null or p_cost not between 0 and 1099511627776 then
        call zone_error('cost', p_cost, null, null);
    end if;
    if length(p_txn_id) <> 16 then
        call zone_error('txn bytes', length(p_txn_id), null, null);
    elseif p_txn_id = repeat(x'00', 16) then
        call zone_error('nil txn', null, null, null);
    end if;

    -- 2. Lock the bucket: in a caller's transaction by an upsert first, since to lock a row that is not there locks the gap. A peek
    --    only looks.
    if v_recorded then
        if p_joined then
            call zone_bucket_open(p_zone_id, p_bucket_key, false);
        end if;
        while v_seq is null do
            select b.seq, b.last_at, b.spent_total, b.level, b.zone_version, b.strikes,
                timestampdiff(microsecond, v_epoch, b.banned_until), b.carried, timestampdiff(microsecond, v_epoch, b.carried_at),
                b.carried_total, b.carried_seq, b.override_seq, b.holding, b.bans + b.ban_strikes, b.salt, b.row_hash, b.moved_to
            into v_seq, v_last_at, o_total, o_level, v_head_version, o_strikes, v_banned_us, v_carried, v_carried_us,
                v_carried_total, v_carried_seq, v_override_seq, v_holding, v_bans, o_salt, o_row_hash, v_moved_to
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key
            for update;
            if v_seq is null then
                call zone_bucket_open(p_zone_id, p_bucket_key, false);
            end if;
        end while;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.zone_version, timestampdiff(microsecond, v_epoch, b.banned_until),
            b.carried, timestampdiff(microsecond, v_epoch, b.carried_at), b.carried_total, b.carried_seq, b.override_seq, b.holding,
            b.moved_to
        into v_seq, v_last_at, o_total, o_level, v_head_version, v_banned_us, v_carried, v_carried_us, v_carried_total,
            v_carried_seq, v_override_seq, v_holding, v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key;
        if v_seq is null then
            -- By statements of their own: what a condition reads is locked in a caller's transaction.
            select count(*) into v_seen from zone_bucket_removed r where r.zone_id = p_zone_id;
            if v_seen > 0 then
                call zone_head_back(
                    p_zone_id, v_key, v_seq, v_last_at, o_total, o_level, v_head_version, o_strikes, o_salt, o_row_hash
                );
            end if;
            set v_seq = coalesce(v_seq, 0);
            set o_total = coalesce(o_total, 0);
            select count(*) into v_seen from tallygate_shard;
            if v_seq = 0 and v_seen > 0 then
                call zone_bucket_home(v_key, false, v_home);
            end if;
        end if;
    end if;
    if v_moved_to is not null then
        call zone_error('elsewhere', v_moved_to, null, null);
    elseif v_home is not null then
        call zone_error('home', v_home, null, null);
    end if;

    -- 3. The clock, after the lock. Time never moves backwards within a bucket.
    call zone_clock(v_now_us);
    set v_last_us = timestampdiff(microsecond, v_epoch, v_last_at);
    if v_last_us > v_now_us then
        set v_ahead_us = v_last_us - v_now_us;
        set v_now_us = v_last_us;
    end if;
    set v_now = date_add(v_epoch, interval v_now_us microsecond);

    -- 4. Rows that a caller's snapshot hides count.
    if p_joined and v_recorded then
        call zone_snapshot_require(p_zone_id, v_key, v_seq);
    end if;

    -- 5. Was it decided before? A charge that was ended has other rows of the same transaction.
    if p_txn_id is null then
        call zone_txn_id_make(v_now_us, p_txn_id);
    elseif p_named and v_recorded and v_seq > 0 then
        select r.id, r.zone_version, r.seq, r.blocked, r.reason, r.zone_limit, r.remaining, r.retry_after_us, r.created_at, r.cost,
            case
                when r.kind = 'local' then 'taken'
                when r.cost <> p_cost then 'other cost'
                when r.kind <> 'unchecked' and r.member is not null then 'other member' -- of what passed unchecked none is known
            end
        into o_id, o_zone_version, o_seq, o_blocked, o_reason, o_zone_limit, o_remaining, o_retry_after_us, o_created_at, v_spent,
            v_other
        from (
            select t.id, t.zone_version, t.seq, t.blocked, t.reason, t.zone_limit, t.remaining, t.retry_after_us, t.created_at,
                t.cost, t.kind, t.member
            from zone_txn t force index (zone_txn_bucket_txn)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id and t.sealed
                and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'local')
            limit 1
        ) r;
        if v_other is not null then
            call zone_error(v_other, hex(p_txn_id), v_spent, p_cost);
        end if;
        if o_id is not null then
            set o_replayed = true;
            set o_simple = false;
            leave decide;
        end if;
    end if;

    -- 6. The policy, by a statement that began after the lock; and the bucket as it is now.
    select z.version, z.algorithm, if(z.algorithm = 'uniform', 1, coalesce(z.burst, z.rate)), z.window_us, z.rate div z.rate_gcd,
        z.window_us div z.rate_gcd, z.mode = 'off', z.beyond_sql
    into o_zone_version, v_algorithm, o_zone_limit, v_window_us, v_per_us, v_per_token, v_off, v_beyond
    from zone_master z
    where z.id = p_zone_id;
    if o_zone_version is null and not p_joined then
        call zone_error('no zone', p_zone_id, null, null);
    elseif coalesce(o_zone_version < v_head_version, o_zone_version is null) then
        call zone_error('old snapshot', null, null, null);
    end if;
    if v_beyond is not null then
        call zone_error('beyond', p_zone_id, v_beyond, null);
    end if;
    if v_seq > 0 and (v_head_version <> o_zone_version or v_override_seq is not null or v_holding and o_level is not null) then
        call zone_bring(
            p_zone_id, v_key, v_head_version, o_zone_version, v_last_us, v_carried_seq, v_holding, v_now_us, v_override_seq, o_level,
            o_zone_limit, v_window_us, v_per_us, v_per_token
        );
    elseif o_level is not null then
        set o_level = if(
            o_level >= o_zone_limit * v_per_token
                or v_now_us - v_last_us >= (o_zone_limit * v_per_token - o_level + (v_per_us - 1)) div v_per_us,
            o_zone_limit * v_per_token, o_level + (v_now_us - v_last_us) * v_per_us
        );
    end if;
    if p_back is not null then
        -- Nothing comes back of what a change of policy put something else in place of.
        if o_level is not null and coalesce(v_carried_seq < p_back_seq, true) then
            set v_given = p_back;
            set o_level = least(o_level + v_given * v_per_token, o_zone_limit * v_per_token);
        end if;
        -- It has ended before it was charged, until the row is sealed.
        insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at)
        values (p_zone_id, v_key, p_back_seq, v_back_at, 0, v_back_at)
        on duplicate key update amount = zone_hold.amount;
        set v_holding = true;
    end if;

    -- 7. Decide.
    set o_reason = 'within_limit';
    if v_off then
        set o_reason = 'off';
        set o_remaining = o_zone_limit;
    elseif v_algorithm in ('sliding-log', 'fixed-window') then
        call zone_window_used(
            p_zone_id, v_key, v_algorithm, v_window_us, v_now_us, v_last_us, o_total, v_carried, v_carried_us, v_carried_total,
            v_carried_seq, v_holding, v_used
        );
        -- The charge that is given back now is still in there.
        if p_back_us >= v_now_us - if(v_algorithm = 'fixed-window', mod(v_now_us, v_window_us), v_window_us - 1)
            and coalesce(v_carried_seq < p_back_seq, true)
        then
            set v_used = v_used - p_back;
        end if;
        set o_remaining = greatest(o_zone_limit - v_used, 0);
        if p_cost > o_zone_limit then
            set o_reason = 'exceeds_limit';
        elseif p_cost > 0 and v_used > o_zone_limit - p_cost then
            set o_reason = 'over_limit';
            call zone_window_wait(
                p_zone_id, v_key, v_algorithm, v_window_us, v_now_us, v_last_us, o_total, v_carried, v_carried_us, v_carried_total,
                v_carried_seq, v_holding, o_zone_limit - p_cost, o_retry_after_us
            );
        else
            set v_spent = p_cost;
            set o_remaining = o_remaining - p_cost;
        end if;
    else
        set v_level = coalesce(o_level, o_zone_limit * v_per_token);
        if p_cost > o_zone_limit then
            set o_reason = 'exceeds_limit';
        elseif p_cost > 0 and p_cost * v_per_token > v_level then
            set o_reason = 'over_limit';
            call zone_level_wait(
                p_zone_id, v_key, v_carried_seq, v_holding, v_level, o_zone_limit * v_per_token, v_per_us, v_per_token,
                p_cost * v_per_token, v_now_us, o_retry_after_us
            );
        else
            set v_spent = p_cost;
            set v_level = v_level - p_cost * v_per_token;
        end if;
        set o_remaining = greatest(v_level div v_per_token, 0);
    end if;
    if v_banned_us > v_now_us and not v_off and (p_cost = 0 or o_reason <> 'exceeds_limit') then
        set o_remaining = 0;
        if p_cost > 0 then
            set o_reason = 'banned';
            set o_retry_after_us = greatest(v_banned_us - v_now_us, coalesce(o_retry_after_us, 0));
            set v_spent = 0;
            set v_level = o_level;
        end if;
    end if;
    if p_back is not null then
        set o_reason = 'recorded';
    elseif not v_off then
        set o_level = v_level;
    end if;
    set o_blocked = o_reason in ('over_limit', 'exceeds_limit', 'banned');
    set o_created_at = v_now;
    set o_replayed = false;
    if not v_recorded then
        set o_retry_after_us = o_retry_after_us + v_ahead_us;
        leave decide;
    end if;

    -- 8. Append the row, and move the head.
    if o_total > 9223372036854775807 - v_spent then
        call zone_error('total', o_total, v_spent, null);
    end if;
    set o_seq = v_seq + 1;
    set o_total = o_total + v_spent;
    call zone_txn_hash(
        o_row_hash, p_txn_id, o_seq, o_zone_version, o_blocked, coalesce(p_back, p_cost), v_spent, o_total, o_remaining, o_zone_limit,
        o_retry_after_us, o_level, o_strikes, p_back_us, v_now_us, v_kind, o_reason, o_row_hash
    );
    -- Rows number themselves. A number that the session has set would be taken, and from the largest on there is none.
    if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
        call zone_error('insert id', @@session.insert_id, null, null);
    end if;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining, zone_limit,
        retry_after_us, level, strikes, target_at, created_at, prev_at, salt, row_hash, sealed
    )
    values (
        p_txn_id, p_zone_id, o_zone_version, v_key, o_seq, v_kind, o_blocked, o_reason, coalesce(p_back, p_cost), v_spent, o_total,
        o_remaining, o_zone_limit, o_retry_after_us, o_level, o_strikes, v_back_at, v_now, v_last_at, if(v_seq = 0, o_salt, null),
        o_row_hash, false
    );
    set o_id = last_insert_id();
    -- MySQL takes 0 too, and does not tell it beforehand.
    if o_id = 0 then
        call zone_error('insert id', 0, null, null);
    end if;
    -- One statement: a routine that is killed before it has written nothing that counts, and after it all of it.
    -- Rows by their primary keys: by another index MariaDB locks the gap beside, under a joined caller's isolation.
    update zone_bucket_lock b
    straight_join zone_txn t force index (primary) on t.id = o_id and t.created_at = v_now
    left join zone_hold h force index (primary) on h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.seq = v_hold
    set t.sealed = true,
        h.amount = p_back,
        h.ends_at = v_now,
        b.seq = o_seq,
        b.last_at = v_now,
        b.spent_total = o_total,
        b.level = o_level,
        b.override_seq = v_override_seq,
        b.holding = v_holding,
        b.zone_version = o_zone_version,
        b.sql_at = if(p_by_sql, v_now, b.sql_at),
        b.row_hash = o_row_hash
    where b.zone_id = p_zone_id and b.bucket_key = v_key;
    set o_simple = coalesce(v_banned_us, v_carried) is null and v_override_seq is null and not v_holding and v_bans + v_ahead_us = 0;
    set o_retry_after_us = o_retry_after_us + v_ahead_us;
end;
