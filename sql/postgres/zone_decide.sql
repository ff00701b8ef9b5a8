-- zone_decide: decides one check of a plain zone and records it, or gives a charge back. Not called from outside.
--
-- The same decision, row and hash as the library's, see docs/chain.md. By scalars and in few statements: each costs some 10 µs.
--
-- Arguments  p_zone_id, p_bucket_key, p_txn_id, p_cost, p_record, p_lock_wait_ms, p_own  as in zone_check
--            p_by_sql  a caller in SQL asks: the bucket remembers it
--            p_named   the transaction may have been decided before
--            p_back, p_back_seq, p_back_at  a charge that is given back: its amount, row and time; null for a check. A refund costs 0,
--                      and its caller has looked for an earlier one under the bucket's lock
-- Result     columns of zone_decision; total, level, strikes, salt and row_hash of the bucket after the row; is_simple where nothing
--            else is to be known of it, and its time is the clock's; rate and window_seconds, which is rounded up, of
--            the policy, where it decided now
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_check
create function zone_decide(
    p_zone_id          int,
    p_bucket_key       text,
    p_txn_id           uuid,
    p_cost             bigint,
    p_record           boolean,
    p_lock_wait_ms     int,
    p_own              boolean,
    p_by_sql           boolean,
    p_named            boolean,
    p_back             bigint      default null,
    p_back_seq         bigint      default null,
    p_back_at          timestamptz default null,
    out id             bigint,
    out txn_id         uuid,
    out zone_version   int,
    out seq            bigint,
    out blocked        boolean,
    out reason         text,
    out zone_limit     bigint,
    out remaining      bigint,
    out retry_after_us bigint,
    out created_at     timestamptz,
    out replayed       boolean,
    out total          bigint,
    out level          bigint,
    out strikes        bigint,
    out salt           bytea,
    out row_hash       bytea,
    out is_simple      boolean,
    out rate           bigint,
    out window_seconds bigint
)
language plpgsql
as $$
declare
    v_recorded      constant boolean := p_cost > 0 or coalesce(p_record, false);
    v_kind          constant text := case when p_back is null then 'check' else 'refund' end;
    -- the bucket's head, as far as it is not in the answer
    v_head          zone_bucket_lock;
    v_seq           bigint;
    v_last_at       timestamptz;
    v_version       int;
    v_banned_until  timestamptz;
    v_carried       bigint;
    v_carried_at    timestamptz;
    v_carried_total bigint;
    v_carried_seq   bigint;
    v_override_seq  bigint;
    v_holding       boolean;
    v_bans          bigint;
    v_moved_to      text;
    -- the policy
    v_algorithm     text;
    v_window_us     bigint;
    v_per_us        bigint;
    v_per_token     bigint;
    v_relaxed       boolean;
    v_off           boolean;
    v_beyond        text;
    -- the decision
    v_now           timestamptz;
    v_ahead_us      bigint := 0; -- how long before v_now it is
    v_used          bigint;
    v_level         bigint;
    v_spent         bigint := 0;
    v_other         text;
begin
    -- 1. Validate. Key and zone are looked at when the bucket's row is made: where it exists, they are good.
    if p_cost is null or p_cost not between 0 and 1099511627776 then
        perform zone_error('cost', p_cost::text);
    end if;
    if p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('nil txn');
    end if;

    -- 2. Lock the bucket. A peek only looks.
    if v_recorded then
        if p_lock_wait_ms is not null then
            perform set_config('lock_timeout', p_lock_wait_ms::text, true);
        end if;
        loop
            select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.carried, b.carried_at, b.carried_total,
                b.carried_seq, b.override_seq, b.zone_version, b.holding, b.bans + b.ban_strikes, b.salt, b.row_hash, b.moved_to
            into v_seq, v_last_at, total, level, strikes, v_banned_until, v_carried, v_carried_at, v_carried_total,
                v_carried_seq, v_override_seq, v_version, v_holding, v_bans, salt, row_hash, v_moved_to
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
            for no key update;
            exit when found;
            v_head := zone_bucket_open(p_zone_id, p_bucket_key);
            exit when v_head.seq is not null;
        end loop;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.banned_until, b.carried, b.carried_at, b.carried_total, b.carried_seq,
            b.override_seq, b.zone_version, b.holding, b.moved_to
        into v_seq, v_last_at, total, level, v_banned_until, v_carried, v_carried_at, v_carried_total, v_carried_seq,
            v_override_seq, v_version, v_holding, v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
        if not found then
            v_head := zone_head_new(p_zone_id, p_bucket_key);
        end if;
    end if;
    if v_head.seq is not null then -- its row was made here, or a peek found none
        v_seq := v_head.seq;
        v_last_at := v_head.last_at;
        total := v_head.spent_total;
        level := v_head.level;
        strikes := v_head.strikes;
        v_version := v_head.zone_version;
        v_holding := false;
        v_bans := 0;
        salt := v_head.salt;
        row_hash := v_head.row_hash;
    end if;
    if v_moved_to is not null then
        perform zone_error('elsewhere', v_moved_to);
    end if;
    if v_seq not between 0 and 281474976710656 or least(total, strikes) < 0 or level < -9223372036854775807 then
        perform zone_error('head', p_zone_id::text);
    end if;

    -- 3. The clock, after the lock. Time never moves backwards within a bucket.
    v_now := pg_catalog.clock_timestamp();
    if v_last_at > v_now then
        v_ahead_us := zone_us(v_last_at) - zone_us(v_now);
        v_now := v_last_at;
    end if;

    -- 4. Was it decided before? Looked up as zone_txn_bucket_txn says. A charge that was ended has other rows of the same transaction.
    if p_txn_id is not null and p_named and v_recorded and v_seq > 0 then
        select t.id, t.txn_id, t.zone_version, t.seq, t.blocked, t.reason, t.zone_limit, t.remaining, t.retry_after_us, t.created_at,
            case
                when t.kind = 'local' then 'taken'
                when t.cost <> p_cost then 'other cost'
                when t.kind <> 'unchecked' and t.member is not null then 'other member' -- of what passed unchecked none is known
            end,
            t.cost
        into id, txn_id, zone_version, seq, blocked, reason, zone_limit, remaining, retry_after_us, created_at, v_other, v_spent
        from zone_txn t
        where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
                = hashtextextended(p_bucket_key, uuid_hash_extended(p_txn_id, p_zone_id))
            and t.bucket_key = p_bucket_key and t.txn_id is not distinct from p_txn_id and t.zone_id is not distinct from p_zone_id
            and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'local')
        limit 1;
        if v_other is not null then
            perform zone_error(v_other, p_txn_id::text, v_spent::text, p_cost::text);
        end if;
        if found then
            replayed := true;
            is_simple := false;
            return;
        end if;
        v_spent := 0;
    end if;
    txn_id := coalesce(p_txn_id, zone_txn_id_make());

    -- 5. The policy, by a statement that began after the lock; and the bucket as it is now.
    select z.version, z.algorithm, case z.algorithm when 'uniform' then 1 else coalesce(z.burst, z.rate) end, z.window_us,
        z.rate / z.rate_gcd, z.window_us / z.rate_gcd, z.durability = 'relaxed', z.mode = 'off', z.beyond_sql,
        z.rate, (z.window_us + 999999) / 1000000
    into zone_version, v_algorithm, zone_limit, v_window_us, v_per_us, v_per_token, v_relaxed, v_off, v_beyond, rate, window_seconds
    from zone_master z
    where z.id = p_zone_id;
    if not found then
        perform zone_error('no zone', p_zone_id::text);
    end if;
    if v_beyond is not null then
        perform zone_error('beyond', p_zone_id::text, v_beyond);
    end if;
    if v_relaxed and v_recorded and p_own then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if v_seq > 0 and (v_version <> zone_version or v_override_seq is not null or v_holding and level is not null) then
        select n.level, n.override_seq, n.zone_limit, n.window_us, n.per_us, n.per_token
        into level, v_override_seq, zone_limit, v_window_us, v_per_us, v_per_token
        from zone_bring(
            p_zone_id, p_bucket_key, v_version, zone_version, v_override_seq, level, v_last_at, v_carried_seq, v_holding, v_now
        ) n;
    elsif level is not null then
        level := zone_level_fill(level, zone_limit * v_per_token, v_per_us, zone_us(v_now) - zone_us(v_last_at));
    end if;

    if p_back is not null then
        -- Nothing comes back of what a change of policy put something else in place of.
        if level is not null and coalesce(v_carried_seq < p_back_seq, true) then
            level := zone_level_give(level, p_back::numeric * v_per_token, zone_limit * v_per_token, v_per_us);
        end if;
        insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at)
        values (p_zone_id, p_bucket_key, p_back_seq, p_back_at, p_back, v_now)
        on conflict on constraint zone_hold_pk do update
        set charged_at = excluded.charged_at,
            amount = excluded.amount,
            ends_at = excluded.ends_at;
        v_holding := true;
    end if;

    -- 6. Decide.
    reason := 'within_limit';
    if v_off then
        reason := 'off';
        remaining := zone_limit;
    elsif v_algorithm in ('sliding-log', 'fixed-window') then
        v_used := zone_window_used(
            p_zone_id, p_bucket_key, zone_window_from(v_algorithm, v_window_us, v_now), v_now, v_last_at, total, v_carried,
            v_carried_at, v_carried_total, v_carried_seq, v_holding
        );
        remaining := greatest(zone_limit - v_used, 0);
        if p_cost > zone_limit then
            reason := 'exceeds_limit';
        elsif p_cost > 0 and v_used > zone_limit - p_cost then
            reason := 'over_limit';
            retry_after_us := zone_window_wait(
                p_zone_id, p_bucket_key, v_algorithm, v_window_us, v_now, v_last_at, total, v_carried, v_carried_at, v_carried_total,
                v_carried_seq, v_holding, zone_limit - p_cost
            );
        else
            v_spent := p_cost;
            remaining := remaining - p_cost;
        end if;
    else
        v_level := coalesce(level, zone_limit * v_per_token);
        if p_cost > zone_limit then
            reason := 'exceeds_limit';
        elsif p_cost > 0 and p_cost * v_per_token > v_level then
            reason := 'over_limit';
            retry_after_us := zone_level_wait(
                p_zone_id, p_bucket_key, v_carried_seq, v_holding, v_level, zone_limit * v_per_token, v_per_us, v_per_token,
                p_cost * v_per_token, zone_us(v_now)
            );
        else
            v_spent := p_cost;
            v_level := v_level - p_cost * v_per_token;
        end if;
        remaining := greatest(v_level / v_per_token, 0);
    end if;
    if v_banned_until > v_now and not v_off and (p_cost = 0 or reason <> 'exceeds_limit') then
        remaining := 0;
        if p_cost > 0 then
            reason := 'banned';
            retry_after_us := greatest(zone_us(v_banned_until) - zone_us(v_now), coalesce(retry_after_us, 0));
            v_spent := 0;
            v_level := level;
        end if;
    end if;
    if p_back is not null then
        reason := 'recorded';
    elsif not v_off then
        level := v_level;
    end if;
    blocked := reason in ('over_limit', 'exceeds_limit', 'banned');
    created_at := v_now;
    replayed := false;
    if not v_recorded then
        retry_after_us := retry_after_us + v_ahead_us;
        return;
    end if;

    -- 7. Append the row, and move the head.
    if total > 9223372036854775807 - v_spent then
        perform zone_error('total', total::text, v_spent::text);
    end if;
    seq := v_seq + 1;
    total := total + v_spent;
    row_hash := sha256(row_hash || zone_txn_bytes(
        txn_id, seq, zone_version, blocked, coalesce(p_back, p_cost), v_spent, total, remaining, zone_limit, retry_after_us, level,
        strikes, p_back_at, v_now, v_kind, reason
    ));
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining, zone_limit,
        retry_after_us, level, strikes, target_at, created_at, prev_at, salt, row_hash
    )
    values (
        txn_id, p_zone_id, zone_version, p_bucket_key, seq, v_kind, blocked, reason, coalesce(p_back, p_cost), v_spent, total,
        remaining, zone_limit, retry_after_us, level, strikes, p_back_at, v_now, v_last_at, case when seq = 1 then salt end, row_hash
    )
    returning zone_txn.id into id;
    update zone_bucket_lock b
    set seq = zone_decide.seq,
        last_at = v_now,
        spent_total = total,
        level = zone_decide.level,
        override_seq = v_override_seq,
        holding = v_holding,
        zone_version = zone_decide.zone_version,
        sql_at = case when p_by_sql then v_now else b.sql_at end,
        row_hash = zone_decide.row_hash
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    is_simple := coalesce(v_banned_until, v_carried_at) is null and v_override_seq is null and not v_holding and v_bans + v_ahead_us = 0;
    retry_after_us := retry_after_us + v_ahead_us;
end
$$;
