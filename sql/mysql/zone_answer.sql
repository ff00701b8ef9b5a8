-- zone_answer: answers one check: decides and records it, or tells what was recorded of it before; not called from
-- outside.
--
-- Runs in the transaction that is open. Nearly every check is of a plain zone and a plain bucket, under READ
-- COMMITTED: a sliding log or a token bucket, and no more. Those are decided and recorded here, in half the time that
-- zone_decide and zone_record take, which do the same for all.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id      the transaction; null makes a version 7 UUID
--            p_cost … p_ttl_us  as for zone_check
--            p_joined      the transaction is the caller's and may be of any isolation level
-- Result     o_*: the columns of a decision, see zone_check
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_check, but for TG006
drop procedure if exists zone_answer;
create procedure zone_answer(
    in    p_zone_id        int,
    in    p_bucket_key     varchar(4000) character set utf8mb4,
    inout p_txn_id         varbinary(100),
    in    p_cost           bigint,
    in    p_record         boolean,
    in    p_checks         int,
    in    p_critical       boolean,
    in    p_member         varchar(4000) character set utf8mb4,
    in    p_ttl_us         bigint,
    in    p_joined         boolean,
    out   o_id             bigint,
    out   o_zone_version   int,
    out   o_seq            bigint,
    out   o_blocked        boolean,
    out   o_reason         varchar(20) character set ascii,
    out   o_zone_limit     bigint,
    out   o_remaining      bigint,
    out   o_retry_after_us bigint,
    out   o_delay_us       bigint,
    out   o_ends_at        datetime(6),
    out   o_created_at     datetime(6),
    out   o_replayed       boolean
)
sql security definer
answer: begin
    declare v_recorded      boolean default p_cost > 0 or coalesce(p_record, false) or p_checks is not null;
    declare v_key           varbinary(4000) default cast(p_bucket_key as binary);
    declare v_member        varbinary(4000) default cast(p_member as binary);
    declare v_critical      boolean default coalesce(p_critical, false);
    declare v_epoch         datetime default timestamp'1970-01-01 00:00:00';
    declare v_found         boolean default true;
    declare v_now_us        bigint;
    declare v_ahead_us      bigint default 0;
    declare v_now           datetime(6);
    -- the bucket's head
    declare v_seq           bigint;
    declare v_moved_to      varchar(64) character set utf8mb4;
    declare v_last_us       bigint;
    declare v_spent_total   bigint;
    declare v_level         bigint;
    declare v_head_version  int;
    declare v_strikes       bigint;
    declare v_banned_us     bigint;
    declare v_bans          int;
    declare v_ban_strikes   bigint;
    declare v_carried       bigint;
    declare v_carried_us    bigint;
    declare v_carried_total bigint;
    declare v_carried_seq   bigint;
    declare v_override_seq  bigint;
    declare v_holding       boolean;
    declare v_salt          binary(16);
    declare v_row_hash      binary(32);
    -- the policy of a plain zone
    declare v_plain         boolean;
    declare v_version       int;
    declare v_algorithm     varchar(20) character set ascii;
    declare v_window_us     bigint;
    declare v_per_us        bigint;
    declare v_per_token     bigint;
    -- the decision
    declare v_from          datetime(6);
    declare v_before        bigint;
    declare v_kind          varchar(20) character set ascii;
    declare v_spent         bigint;
    declare v_ends_us       bigint;
    declare v_ban_us        bigint;
    declare v_past_cost     bigint;
    declare v_past_member   varbinary(255);
    declare continue handler for not found set v_found = false;

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
    if p_checks < 1 then
        call zone_error('checks', p_checks, null, null);
    end if;
    if p_member is not null or p_ttl_us is not null then
        if length(p_member) not between 1 and 255 or p_member regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]' then
            call zone_error('member bytes', length(p_member), null, null);
        end if;
        if p_ttl_us not between 1 and 315576000000000 then
            call zone_error('time', 'a reservation', p_ttl_us, null);
        end if;
        if p_ttl_us is not null and p_cost = 0 then
            call zone_error('reserve', null, null, null);
        end if;
    end if;

    -- 2. Lock the bucket. A peek only looks.
    if v_recorded and not p_joined then
        select b.seq, timestampdiff(microsecond, v_epoch, b.last_at), b.spent_total, b.level, b.zone_version,
            b.strikes, timestampdiff(microsecond, v_epoch, b.banned_until), b.bans, b.ban_strikes, b.carried,
            timestampdiff(microsecond, v_epoch, b.carried_at), b.carried_total, b.carried_seq, b.override_seq,
            b.holding, b.salt, b.row_hash, b.moved_to
        into v_seq, v_last_us, v_spent_total, v_level, v_head_version, v_strikes, v_banned_us, v_bans, v_ban_strikes,
            v_carried, v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, v_salt, v_row_hash,
            v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key
        for update;
        if v_moved_to is not null then
            call zone_error('elsewhere', v_moved_to, null, null);
        end if;
    end if;
    if v_seq is null then
        call zone_bucket_hold(
            p_zone_id, p_bucket_key, v_recorded, p_joined, v_seq, v_last_us, v_spent_total, v_level, v_head_version,
            v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq,
            v_override_seq, v_holding, v_salt, v_row_hash
        );
    end if;

    -- 3. The clock, after the lock. Time never moves backwards within a bucket.
    call zone_clock(v_now_us);
    if v_last_us > v_now_us then
        set v_ahead_us = v_last_us - v_now_us;
        set v_now_us = v_last_us;
    end if;

    -- 4. The decision that was made before.
    if p_txn_id is null then
        call zone_txn_id_make(v_now_us, p_txn_id);
    elseif v_recorded and v_seq > 0 then
        call zone_txn_find(
            p_zone_id, v_key, p_txn_id, 'check,reserve,coalesced,unchecked,local', v_seq, v_last_us, p_joined, o_id, v_kind,
            o_zone_version, o_seq, o_blocked, o_reason, v_past_cost, v_spent, o_zone_limit, o_remaining,
            o_retry_after_us, o_delay_us, o_ends_at, o_created_at, v_past_member
        );
        if o_id is not null then
            if v_kind = 'local' then
                call zone_error('taken', null, null, null);
            end if;
            if v_past_cost <> p_cost then
                call zone_error('other cost', hex(p_txn_id), v_past_cost, p_cost);
            end if;
            -- Of what passed unchecked no member is known.
            if v_kind <> 'unchecked' and not (v_past_member <=> v_member) then
                call zone_error('other member', hex(p_txn_id), null, null);
            end if;
            set o_replayed = true;
            leave answer;
        end if;
    end if;

    -- 5. The policy, by a statement that began after the lock.
    if not p_joined and p_checks is null and p_member is null and p_ttl_us is null and v_override_seq is null
        and not v_holding and not coalesce(v_banned_us > v_now_us, false)
    then
        select z.version, z.algorithm, coalesce(z.burst, z.rate), z.window_us, z.rate div z.rate_gcd,
            z.window_us div z.rate_gcd,
            z.algorithm in ('sliding-log', 'token-bucket') and z.mode = 'enforce' and z.soft_rate is null
                and z.reserve = 0 and not z.count_blocked and z.ban_after is null
                and coalesce(v_head_version = z.version, true)
                and not coalesce(v_carried_us > v_now_us - z.window_us, false)
        into v_version, v_algorithm, o_zone_limit, v_window_us, v_per_us, v_per_token, v_plain
        from zone_master z
        where z.id = p_zone_id;
    end if;

    -- 6. Decide and record.
    set v_now = date_add(v_epoch, interval v_now_us microsecond);
    set o_id = null;
    set o_seq = if(v_recorded, v_seq + 1, null);
    set o_retry_after_us = null;
    set o_delay_us = null;
    if v_plain then
        set v_head_version = v_version;
        set v_spent = 0;
        set o_reason = 'within_limit';
        if v_algorithm = 'token-bucket' then
            if v_level is null
                or v_now_us - v_last_us >= (o_zone_limit * v_per_token - v_level + (v_per_us - 1)) div v_per_us
            then
                set v_level = o_zone_limit * v_per_token;
            else
                set v_level = v_level + (v_now_us - v_last_us) * v_per_us;
            end if;
            if p_cost > o_zone_limit then
                set o_reason = 'exceeds_limit';
            elseif p_cost * v_per_token > v_level then
                set o_reason = 'over_limit';
                set o_retry_after_us = (p_cost * v_per_token - v_level + (v_per_us - 1)) div v_per_us;
            else
                set v_spent = p_cost;
                set v_level = v_level - p_cost * v_per_token;
            end if;
            set o_remaining = v_level div v_per_token;
        else
            set v_level = null;
            set v_before = v_spent_total;
            if v_seq > 0 and v_last_us > v_now_us - v_window_us then
                set v_from = date_sub(v_now, interval v_window_us microsecond);
                set v_before = null;
                select if(
                    t.prev_at > v_from,
                    (
                        select d.spent_total
                        from zone_txn_dropped d
                        where d.zone_id = t.zone_id and d.bucket_key = t.bucket_key and d.seq >= t.seq - 1
                    ),
                    t.spent_total - t.spent
                )
                into v_before
                from zone_txn t force index (zone_txn_bucket_uq)
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at > v_from
                    and t.sealed
                order by t.created_at, t.seq
                limit 1;
                if v_before is null then
                    call zone_error('ledger', p_zone_id, null, null);
                end if;
            end if;
            set o_remaining = greatest(o_zone_limit - (v_spent_total - v_before), 0);
            if p_cost > o_zone_limit then
                set o_reason = 'exceeds_limit';
            elseif p_cost > 0 and v_spent_total - v_before > o_zone_limit - p_cost then
                set o_reason = 'over_limit';
                -- By when had enough been spent? Once that has left the window, the cost fits.
                call zone_total_reached(
                    p_zone_id, v_key, v_spent_total - o_zone_limit + p_cost, v_now_us - v_window_us, v_last_us,
                    o_retry_after_us
                );
                set o_retry_after_us = o_retry_after_us + v_window_us - v_now_us;
                if o_retry_after_us is null then
                    call zone_error('ledger', p_zone_id, null, null);
                end if;
            else
                set v_spent = p_cost;
                set o_remaining = o_remaining - p_cost;
            end if;
        end if;
        set o_blocked = o_reason <> 'within_limit';
        if v_recorded then
            if v_spent_total > 9223372036854775807 - v_spent then
                call zone_error('total', v_spent_total, v_spent, null);
            end if;
            call zone_txn_hash(
                v_row_hash, p_txn_id, o_seq, v_version, 1, o_blocked, v_critical, p_cost, v_spent,
                v_spent_total + v_spent, o_remaining, o_zone_limit, o_retry_after_us, null, v_level, v_strikes, null,
                v_now_us, null, 'check', o_reason, x'0000000000', v_row_hash
            );
            -- See zone_record.
            if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
                call zone_error('insert id', @@session.insert_id, null, null);
            end if;
            insert into zone_txn (
                txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, critical, cost, spent,
                spent_total, remaining, zone_limit, retry_after_us, level, strikes, created_at, prev_at,
                salt, row_hash, sealed
            )
            values (
                p_txn_id, p_zone_id, v_version, v_key, o_seq, 'check', o_blocked, o_reason, v_critical, p_cost, v_spent,
                v_spent_total + v_spent, o_remaining, o_zone_limit, o_retry_after_us, v_level, v_strikes, v_now,
                date_add(v_epoch, interval v_last_us microsecond), if(v_seq = 0, v_salt, null), v_row_hash,
                false
            );
            set o_id = last_insert_id();
            if o_id = 0 then
                call zone_error('insert id', 0, null, null);
            end if;
            -- One statement, see zone_record.
            update zone_bucket_lock b
            straight_join zone_txn t force index (primary) on t.id = o_id and t.created_at = v_now
            set t.sealed = true,
                b.seq = o_seq,
                b.last_at = v_now,
                b.spent_total = v_spent_total + v_spent,
                b.level = v_level,
                b.zone_version = v_version,
                b.row_hash = v_row_hash
            where b.zone_id = p_zone_id and b.bucket_key = v_key;
        end if;
    else
        set v_kind = case
            when p_checks is not null then 'coalesced'
            when p_ttl_us is not null then 'reserve'
            else 'check'
        end;
        if p_checks is not null then
            call zone_flood_validate(p_zone_id, v_key, p_checks, v_now_us);
        end if;
        -- Where nothing is decided, the bucket is brought to now and looked at.
        call zone_decide(
            p_zone_id, v_key, v_now_us, p_joined, false, 0, 0, null, null, if(p_checks is null, p_cost, 0),
            v_critical and p_checks is null, if(p_checks is null, v_member, null),
            if(p_checks is null, p_ttl_us, null), false, v_seq, v_last_us,
            v_spent_total, v_level, v_head_version, v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried,
            v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, o_blocked, o_reason, v_spent,
            o_zone_limit, o_remaining, o_retry_after_us, o_delay_us, v_ends_us, v_ban_us
        );
        if p_checks is not null then
            set o_blocked = true;
            set o_reason = if(v_banned_us > v_now_us, 'banned', 'over_limit');
            set o_delay_us = null;
        end if;
        if v_recorded then
            call zone_record(
                p_zone_id, v_key, p_txn_id, v_kind, coalesce(p_checks, 1), o_blocked, o_reason, v_critical, p_cost,
                v_spent, v_spent_total, o_remaining, o_zone_limit, o_retry_after_us, o_delay_us, v_level, v_strikes,
                null, null, null, v_now_us, v_ends_us, v_member, v_ban_us, v_seq, v_last_us, v_head_version,
                v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq,
                v_override_seq, v_holding, v_salt, v_row_hash, o_id
            );
            if o_id is null then
                call zone_error('killed', null, null, null);
            end if;
        end if;
    end if;
    -- A row's waits count from its own time, those of the answer from now.
    set o_retry_after_us = o_retry_after_us + v_ahead_us;
    set o_delay_us = o_delay_us + v_ahead_us;
    set o_zone_version = v_head_version;
    set o_ends_at = date_add(v_epoch, interval least(v_ends_us, 253402300799999999) microsecond);
    set o_created_at = v_now;
    set o_replayed = false;
end;
