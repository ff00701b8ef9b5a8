-- zone_decide: a call of a routine for SQL callers: decides one check of a plain zone and records it, or gives a charge back; not
-- called from outside.
--
-- The same decision, row and hash as the library's, see docs/chain.md. In one routine: each that is called takes a microsecond for
-- each of its variables. Reads with a limit stand in derived tables for the reason that zone_engine_ask tells.
--
-- Arguments  p_form    the routine, whose answer it tells: check, velocity, tokens, refund or engine
--            p_joined  the caller's transaction, which must be open and may be of any isolation level; else one of its own, which
--                      must not
--            p_zone    the zone, its name or its number; null for that of a rate_limiting_request, which is made if there is none
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id  the transaction; null makes a version 7 UUID
--            p_named   the transaction may have been decided before
--            p_refill_per_sec, p_window_seconds  as in rate_limiting_request
--            the others as in zone_check. A refund costs 0
-- Locks      the bucket's row, until the transaction ends; of a new zone its name
-- Errors     those of zone_check and zone_check_in
drop procedure if exists zone_decide;
create procedure zone_decide(
    in p_form           varchar(20) character set ascii,
    in p_joined         boolean,
    in p_zone           varbinary(4000),
    in p_bucket_key     varbinary(4000),
    in p_txn_id         varbinary(100),
    in p_cost           varbinary(100),
    in p_record         varbinary(100),
    in p_named          boolean,
    in p_lock_wait_s    varbinary(100),
    in p_refill_per_sec varbinary(100),
    in p_window_seconds varbinary(100)
)
sql security definer
begin
    -- the decision
    declare v_id             bigint;
    declare v_txn_id         varbinary(100) default p_txn_id;
    declare v_zone_id        int;
    declare v_zone_version   int;
    declare v_seq            bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_created_at     datetime(6);
    declare v_replayed       boolean default true;
    -- the bucket after it; simple where nothing else is to be known of it, and its time is the clock's
    declare v_total          bigint;
    declare v_level          bigint;
    declare v_strikes        bigint;
    declare v_salt           binary(16);
    declare v_row_hash       binary(32);
    declare v_simple         boolean default false;
    -- its head, as far as it is not in the answer
    declare v_head_seq       bigint;
    declare v_seen           bigint;
    declare v_last_us        bigint;
    declare v_last_at        datetime(6);
    declare v_head_version   int;
    declare v_banned_us      bigint;
    declare v_carried        bigint;
    declare v_carried_us     bigint;
    declare v_carried_total  bigint;
    declare v_carried_seq    bigint;
    declare v_override_seq   bigint;
    declare v_holding        boolean default false;
    declare v_bans           bigint;
    declare v_moved_to       varchar(64) character set utf8mb4;
    declare v_home           varchar(63) character set ascii;
    -- the policy
    declare v_algorithm      varchar(20) character set ascii;
    declare v_rate           bigint;
    declare v_window_s       bigint;
    declare v_window_us      bigint;
    declare v_per_us         bigint;
    declare v_per_token      bigint;
    declare v_off            boolean;
    declare v_beyond         varchar(20) character set ascii;
    -- the charge that is given back
    declare v_back           bigint;
    declare v_back_seq       bigint;
    declare v_back_us        bigint;
    declare v_back_at        datetime(6);
    -- on the way
    declare v_text           varchar(4000) character set utf8mb4;
    declare v_key            varbinary(4000);
    declare v_cost           bigint;
    declare v_recorded       boolean;
    declare v_kind           varchar(20) character set ascii default 'check';
    declare v_epoch          datetime default timestamp'1970-01-01 00:00:00';
    declare v_now            datetime(6);
    declare v_now_us         bigint;
    declare v_ahead_us       bigint default 0; -- how long before v_now_us it is
    declare v_used           bigint;
    declare v_left           bigint;
    declare v_given          decimal(65);
    declare v_spent          bigint default 0;
    declare v_other          varchar(20) character set ascii;
    declare v_lock_wait_s    int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s         int default coalesce(p_lock_wait_s, v_lock_wait_s);
    -- A session that keeps no warning would keep from every handler that nothing was found.
    if @@session.max_error_count = 0 then
        set max_error_count = 64;
    end if;
    if p_joined then
        call zone_transaction_require();
    else
        -- Fails with 1568 inside an open transaction, and leaves that as it is.
        set transaction isolation level read committed;
    end if;
    decide: begin
        declare continue handler for not found begin end;
        declare exit handler for sqlexception, 1265
        begin
            if not p_joined then
                rollback and no chain no release;
            end if;
            set innodb_lock_wait_timeout = v_lock_wait_s;
            resignal;
        end;
        set innodb_lock_wait_timeout = v_wait_s;
        set v_text = p_bucket_key;
        set v_key = cast(v_text as binary);
        set v_cost = p_cost;
        set v_recorded = p_record;
        set v_recorded = v_cost > 0 or coalesce(v_recorded, false);
        if not p_joined then
            start transaction;
        end if;
        if p_zone is null and p_form = 'tokens' then
            call zone_token_bucket_make(p_refill_per_sec, p_window_seconds, v_zone_id);
        else
            call zone_number(p_zone, v_zone_id);
        end if;
        if p_form = 'refund' then
            call zone_charge_find(
                v_zone_id, p_bucket_key, v_txn_id, p_joined, v_id, v_zone_version, v_seq, v_remaining, v_created_at, v_back,
                v_back_seq, v_back_us
            );
            if v_id is not null then
                -- It was recorded before.
                leave decide;
            end if;
            set v_kind = 'refund';
            set v_back_at = date_add(v_epoch, interval v_back_us microsecond);
        end if;

        -- 1. Validate. Key and zone are looked at when the bucket's row is made: where it exists, they are good.
        if v_cost is null or v_cost not between 0 and 1099511627776 then
            call zone_error('cost', v_cost, null, null);
        end if;
        if length(v_txn_id) <> 16 then
            call zone_error('txn bytes', length(v_txn_id), null, null);
        elseif v_txn_id = repeat(x'00', 16) then
            call zone_error('nil txn', null, null, null);
        end if;

        -- 2. Lock the bucket: in a caller's transaction by an upsert first, since to lock a row that is not there locks the gap. A peek
        --    only looks.
        if v_recorded then
            if p_joined then
                call zone_bucket_open(v_zone_id, v_text, false);
            end if;
            while v_head_seq is null do
                select b.seq, b.last_at, b.spent_total, b.level, b.zone_version, b.strikes,
                    timestampdiff(microsecond, v_epoch, b.banned_until), b.carried, timestampdiff(microsecond, v_epoch, b.carried_at),
                    b.carried_total, b.carried_seq, b.override_seq, b.holding, b.bans + b.ban_strikes, b.salt, b.row_hash, b.moved_to
                into v_head_seq, v_last_at, v_total, v_level, v_head_version, v_strikes, v_banned_us, v_carried, v_carried_us,
                    v_carried_total, v_carried_seq, v_override_seq, v_holding, v_bans, v_salt, v_row_hash, v_moved_to
                from zone_bucket_lock b
                where b.zone_id = v_zone_id and b.bucket_key = v_key
                for update;
                if v_head_seq is null then
                    call zone_bucket_open(v_zone_id, v_text, false);
                end if;
            end while;
        else
            select b.seq, b.last_at, b.spent_total, b.level, b.zone_version, timestampdiff(microsecond, v_epoch, b.banned_until),
                b.carried, timestampdiff(microsecond, v_epoch, b.carried_at), b.carried_total, b.carried_seq, b.override_seq, b.holding,
                b.moved_to
            into v_head_seq, v_last_at, v_total, v_level, v_head_version, v_banned_us, v_carried, v_carried_us, v_carried_total,
                v_carried_seq, v_override_seq, v_holding, v_moved_to
            from zone_bucket_lock b
            where b.zone_id = v_zone_id and b.bucket_key = v_key;
            if v_head_seq is null then
                -- By statements of their own: what a condition reads is locked in a caller's transaction.
                select count(*) into v_seen from zone_bucket_removed r where r.zone_id = v_zone_id;
                if v_seen > 0 then
                    call zone_head_back(
                        v_zone_id, v_key, v_head_seq, v_last_at, v_total, v_level, v_head_version, v_strikes, v_salt, v_row_hash
                    );
                end if;
                set v_head_seq = coalesce(v_head_seq, 0);
                set v_total = coalesce(v_total, 0);
                select count(*) into v_seen from tallygate_shard;
                if v_head_seq = 0 and v_seen > 0 then
                    call zone_bucket_home(v_key, false, v_home);
                end if;
            end if;
        end if;
        if v_moved_to is not null then
            call zone_error('elsewhere', v_moved_to, null, null);
        elseif v_home is not null then
            call zone_error('home', v_home, null, null);
        elseif v_head_seq not between 0 and 281474976710656 or least(v_total, coalesce(v_strikes, 0)) < 0 or v_level < -9223372036854775807
        then
            call zone_error('head', v_zone_id, null, null);
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
            call zone_snapshot_require(v_zone_id, v_key, v_head_seq);
        end if;

        -- 5. Was it decided before? A charge that was ended has other rows of the same transaction.
        if v_txn_id is null then
            call zone_txn_id_make(v_now_us, v_txn_id);
        elseif p_named and v_recorded and v_head_seq > 0 then
            select r.id, r.zone_version, r.seq, r.blocked, r.reason, r.zone_limit, r.remaining, r.retry_after_us, r.created_at, r.cost,
                case
                    when r.kind = 'local' then 'taken'
                    when r.cost <> v_cost then 'other cost'
                    when r.kind <> 'unchecked' and r.member is not null then 'other member' -- of what passed unchecked none is known
                end
            into v_id, v_zone_version, v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_created_at, v_spent,
                v_other
            from (
                select t.id, t.zone_version, t.seq, t.blocked, t.reason, t.zone_limit, t.remaining, t.retry_after_us, t.created_at,
                    t.cost, t.kind, t.member
                from zone_txn t force index (zone_txn_bucket_txn)
                where t.zone_id = v_zone_id and t.bucket_key = v_key and t.txn_id = v_txn_id and t.sealed
                    and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'local')
                limit 1
            ) r;
            if v_other is not null then
                call zone_error(v_other, hex(v_txn_id), v_spent, v_cost);
            end if;
            if v_id is not null then
                leave decide;
            end if;
        end if;

        -- 6. The policy, by a statement that began after the lock; and the bucket as it is now.
        select z.version, z.algorithm, if(z.algorithm = 'uniform', 1, coalesce(z.burst, z.rate)), z.window_us, z.rate div z.rate_gcd,
            z.window_us div z.rate_gcd, z.mode = 'off', z.beyond_sql, z.rate, (z.window_us + 999999) div 1000000
        into v_zone_version, v_algorithm, v_zone_limit, v_window_us, v_per_us, v_per_token, v_off, v_beyond, v_rate,
            v_window_s
        from zone_master z
        where z.id = v_zone_id;
        if v_zone_version is null and not p_joined then
            call zone_error('no zone', v_zone_id, null, null);
        elseif coalesce(v_zone_version < v_head_version, v_zone_version is null) then
            call zone_error('old snapshot', null, null, null);
        end if;
        if v_beyond is not null then
            call zone_error('beyond', v_zone_id, v_beyond, null);
        end if;
        if v_head_seq > 0 and (v_head_version <> v_zone_version or v_override_seq is not null or v_holding and v_level is not null) then
            call zone_bring(
                v_zone_id, v_key, v_head_version, v_zone_version, v_last_us, v_carried_seq, v_holding, v_now_us, v_override_seq, v_level,
                v_zone_limit, v_window_us, v_per_us, v_per_token
            );
        elseif v_level is not null then
            set v_level = if(
                v_level >= v_zone_limit * v_per_token
                    or v_now_us - v_last_us >= (v_zone_limit * v_per_token - v_level + (v_per_us - 1)) div v_per_us,
                v_zone_limit * v_per_token, v_level + (v_now_us - v_last_us) * v_per_us
            );
        end if;
        if v_back is not null then
            -- Nothing comes back of what a change of policy put something else in place of.
            if v_level is not null and coalesce(v_carried_seq < v_back_seq, true) then
                set v_given = v_back;
                set v_level = least(v_level + v_given * v_per_token, v_zone_limit * v_per_token);
            end if;
            -- It has ended before it was charged, until the row is sealed.
            insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at)
            values (v_zone_id, v_key, v_back_seq, v_back_at, 0, v_back_at)
            on duplicate key update amount = zone_hold.amount;
            set v_holding = true;
        end if;

        -- 7. Decide.
        set v_reason = 'within_limit';
        if v_off then
            set v_reason = 'off';
            set v_remaining = v_zone_limit;
        elseif v_algorithm in ('sliding-log', 'fixed-window') then
            call zone_window_used(
                v_zone_id, v_key, v_algorithm, v_window_us, v_now_us, v_last_us, v_total, v_carried, v_carried_us, v_carried_total,
                v_carried_seq, v_holding, v_used
            );
            -- The charge that is given back now is still in there.
            if v_back_us >= v_now_us - if(v_algorithm = 'fixed-window', mod(v_now_us, v_window_us), v_window_us - 1)
                and coalesce(v_carried_seq < v_back_seq, true)
            then
                set v_used = v_used - v_back;
            end if;
            set v_remaining = greatest(v_zone_limit - v_used, 0);
            if v_cost > v_zone_limit then
                set v_reason = 'exceeds_limit';
            elseif v_cost > 0 and v_used > v_zone_limit - v_cost then
                set v_reason = 'over_limit';
                call zone_window_wait(
                    v_zone_id, v_key, v_algorithm, v_window_us, v_now_us, v_last_us, v_total, v_carried, v_carried_us, v_carried_total,
                    v_carried_seq, v_holding, v_zone_limit - v_cost, v_retry_after_us
                );
            else
                set v_spent = v_cost;
                set v_remaining = v_remaining - v_cost;
            end if;
        else
            set v_left = coalesce(v_level, v_zone_limit * v_per_token);
            if v_cost > v_zone_limit then
                set v_reason = 'exceeds_limit';
            elseif v_cost > 0 and v_cost * v_per_token > v_left then
                set v_reason = 'over_limit';
                call zone_level_wait(
                    v_zone_id, v_key, v_carried_seq, v_holding, v_left, v_zone_limit * v_per_token, v_per_us, v_per_token,
                    v_cost * v_per_token, v_now_us, v_retry_after_us
                );
            else
                set v_spent = v_cost;
                set v_left = v_left - v_cost * v_per_token;
            end if;
            set v_remaining = greatest(v_left div v_per_token, 0);
        end if;
        if v_banned_us > v_now_us and not v_off and (v_cost = 0 or v_reason <> 'exceeds_limit') then
            set v_remaining = 0;
            if v_cost > 0 then
                set v_reason = 'banned';
                set v_retry_after_us = greatest(v_banned_us - v_now_us, coalesce(v_retry_after_us, 0));
                set v_spent = 0;
                set v_left = v_level;
            end if;
        end if;
        if v_back is not null then
            set v_reason = 'recorded';
        elseif not v_off then
            set v_level = v_left;
        end if;
        set v_blocked = v_reason in ('over_limit', 'exceeds_limit', 'banned');
        set v_created_at = v_now;
        set v_replayed = false;
        if not v_recorded then
            set v_retry_after_us = v_retry_after_us + v_ahead_us;
            leave decide;
        end if;

        -- 8. Append the row, and move the head.
        if v_total > 9223372036854775807 - v_spent then
            call zone_error('total', v_total, v_spent, null);
        end if;
        set v_seq = v_head_seq + 1;
        set v_total = v_total + v_spent;
        call zone_txn_hash(
            v_row_hash, v_txn_id, v_seq, v_zone_version, v_blocked, coalesce(v_back, v_cost), v_spent, v_total, v_remaining, v_zone_limit,
            v_retry_after_us, v_level, v_strikes, v_back_us, v_now_us, v_kind, v_reason, v_row_hash
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
            v_txn_id, v_zone_id, v_zone_version, v_key, v_seq, v_kind, v_blocked, v_reason, coalesce(v_back, v_cost), v_spent, v_total,
            v_remaining, v_zone_limit, v_retry_after_us, v_level, v_strikes, v_back_at, v_now, v_last_at, if(v_head_seq = 0, v_salt, null),
            v_row_hash, false
        );
        set v_id = last_insert_id();
        -- MySQL takes 0 too, and does not tell it beforehand.
        if v_id = 0 then
            call zone_error('insert id', 0, null, null);
        end if;
        -- One statement: a routine that is killed before it has written nothing that counts, and after it all of it.
        -- Rows by their primary keys: by another index MariaDB locks the gap beside, under a joined caller's isolation.
        update zone_bucket_lock b
        straight_join zone_txn t force index (primary) on t.id = v_id and t.created_at = v_now
        left join zone_hold h force index (primary) on h.zone_id = v_zone_id and h.bucket_key = v_key and h.seq = v_back_seq
        set t.sealed = true,
            h.amount = v_back,
            h.ends_at = v_now,
            b.seq = v_seq,
            b.last_at = v_now,
            b.spent_total = v_total,
            b.level = v_level,
            b.override_seq = v_override_seq,
            b.holding = v_holding,
            b.zone_version = v_zone_version,
            b.sql_at = if(p_form <> 'engine', v_now, b.sql_at),
            b.row_hash = v_row_hash
        where b.zone_id = v_zone_id and b.bucket_key = v_key;
        set v_simple = coalesce(v_banned_us, v_carried) is null and v_override_seq is null and not v_holding and v_bans + v_ahead_us = 0;
        set v_retry_after_us = v_retry_after_us + v_ahead_us;
    end decide;
    if not p_joined then
        commit and no chain no release;
    end if;
    set innodb_lock_wait_timeout = v_lock_wait_s;
    case p_form
        when 'check' then
            select v_id as id, v_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
                convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_blocked as blocked, v_reason as reason,
                cast(p_cost as signed) as cost, v_zone_limit as zone_limit, v_remaining as remaining,
                v_retry_after_us as retry_after_us, v_created_at as created_at, v_replayed as replayed;
        when 'velocity' then
            select v_blocked as blocked, v_id as id, v_zone_id as zone_id, convert(p_bucket_key using utf8mb4) as bucket_key,
                v_rate as rate, v_window_s as window_seconds;
        when 'tokens' then
            select if(v_blocked, -1, v_remaining) as rate_limiting_request;
        when 'refund' then
            select v_id as id, v_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
                convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_back as cost, v_remaining as remaining,
                v_created_at as created_at, v_replayed as replayed;
        when 'engine' then
            select v_zone_version as zone_version, v_seq as seq, v_blocked as blocked, v_reason as reason,
                v_zone_limit as zone_limit, v_remaining as remaining, v_retry_after_us as retry_after_us, v_created_at as created_at,
                v_replayed as replayed, v_total as spent_total, v_level as level, v_strikes as strikes, v_salt as salt,
                v_row_hash as row_hash, v_simple as is_simple;
    end case;
end;
