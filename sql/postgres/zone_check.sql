-- zone_check: decides one check and records it.
--
-- Joins the caller's transaction: the decision is committed, or taken back, with it.
--
-- Arguments  p_zone_id       the zone
--            p_bucket_key    the bucket, 1 to 255 bytes without control characters
--            p_txn_id        the transaction; null makes a version 7 UUID
--            p_cost          what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_fresh         the caller just made p_txn_id, so it need not be looked for
--            p_record        leave a row even for a peek
--            p_lock_wait_ms  the longest wait for a lock, up to the end of the transaction; null leaves
--                            the session's lock_timeout as it is
--            p_own           the transaction is this call's own: where the zone is relaxed, its commit need
--                            not wait for the disk
--            p_checks        null: an ordinary check. Else so many checks which were answered blocked from
--                            memory are recorded as one row: nothing is decided or spent
-- Result     one zone_decision
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 the transaction was decided with another cost;
--            TG003 a value is out of range; TG004 the bucket's total is full;
--            TG005 the ledger lacks rows of the window; 55P03 the lock was not had in time
create function zone_check(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid    default null,
    p_cost         bigint  default 1,
    p_fresh        boolean default false,
    p_record       boolean default false,
    p_lock_wait_ms int     default null,
    p_own          boolean default false,
    p_checks       int     default null
)
returns zone_decision
language plpgsql
security definer
set search_path from current
-- Each read of the ledger wants the first row of an index range. Where the statistics know no row of the bucket
-- yet, the planner holds reading the whole range and sorting it for as cheap.
set enable_sort = off
set enable_incremental_sort = off
-- Up to PostgreSQL 17 what is switched off counts as dear, and what is dear is compiled.
set jit = off
as $$
declare
    v_recorded    constant boolean := p_cost > 0 or coalesce(p_record, false) or p_checks is not null;
    -- what is decided about: where nothing is, only the bucket's state is brought to now
    v_cost        constant bigint := case when p_checks is null then p_cost else 0 end;
    v_txn_id      uuid := p_txn_id;
    -- the bucket's head
    v_seq         bigint;
    v_last_at     timestamptz;
    v_spent_total bigint;
    v_level       bigint;
    v_head_version int;
    -- the policy
    v_version     int;
    v_algorithm   text;
    v_durability  text;
    v_limit       bigint;
    v_window      interval;
    v_per_us      bigint;
    v_per_token   bigint;
    -- the decision
    v_now         timestamptz;
    v_start       timestamptz;
    v_base        bigint;
    v_missing     bigint;
    v_elapsed_us  bigint;
    v_reached_at  timestamptz;
    v_reason      text := 'within_limit';
    v_remaining   bigint;
    v_wait_us     bigint;
    v_spent       bigint := 0;
    v_id          bigint;
    v_past        zone_decision;
begin
    -- 1. Validate. Key and zone are looked at when the bucket's row is made: where it exists, they are good.
    if p_cost is null or p_cost not between 0 and 1099511627776 then
        perform zone_error('cost', p_cost::text);
    end if;
    if p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('nil txn');
    end if;
    if p_checks < 1 then
        perform zone_error('checks', p_checks::text);
    end if;

    -- 2. Lock the bucket. A peek only looks.
    if v_recorded then
        if p_lock_wait_ms is not null then
            perform set_config('lock_timeout', p_lock_wait_ms::text, true);
        end if;
        loop
            select b.seq, b.last_at, b.spent_total, b.level, b.zone_version
            into v_seq, v_last_at, v_spent_total, v_level, v_head_version
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
            for no key update;
            exit when found;
            perform zone_bucket_open(p_zone_id, p_bucket_key);
        end loop;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.zone_version
        into v_seq, v_last_at, v_spent_total, v_level, v_head_version
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
        if not found then
            v_seq := 0;
            v_spent_total := 0;
        end if;
    end if;

    -- 3. The clock, after the lock. Time never moves backwards within a bucket.
    v_now := greatest(pg_catalog.clock_timestamp(), v_last_at);

    -- 4. Policy and ledger, each by a statement that began after the lock.
    select z.version, z.algorithm, coalesce(z.burst, z.rate), z.window_us * interval '1 microsecond',
        z.rate / z.rate_gcd, z.window_us / z.rate_gcd, z.durability
    into v_version, v_algorithm, v_limit, v_window, v_per_us, v_per_token, v_durability
    from zone_master z
    where z.id = p_zone_id;
    if not found then
        perform zone_error('no zone', p_zone_id::text);
    end if;
    if v_recorded and p_own and v_durability = 'relaxed' then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    if v_txn_id is null then
        v_txn_id := zone_txn_id_make();
    elsif v_recorded and v_seq > 0
        -- A new id needs no look, unless somebody decided while this call waited: that may have been a second
        -- attempt of the same check, whose first one lost its caller.
        and not (coalesce(p_fresh, false) and v_last_at < pg_catalog.statement_timestamp())
    then
        -- The first row from there on: in this order there is one index only to read it by.
        select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.blocked, t.reason, t.cost,
            coalesce(v.burst, v.rate), t.remaining, t.retry_after_us, t.created_at, true
        into v_past
        from (
            select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.blocked, t.reason, t.cost,
                t.remaining, t.retry_after_us, t.created_at
            from zone_txn t
            where (t.zone_id, t.bucket_key, t.txn_id) >= (p_zone_id, p_bucket_key, v_txn_id)
            order by t.zone_id, t.bucket_key, t.txn_id
            limit 1
        ) t
        join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.txn_id = v_txn_id;
        if found then
            if v_past.cost <> p_cost then
                perform zone_error('other cost', v_txn_id::text, v_past.cost::text, p_cost::text);
            end if;
            return v_past;
        end if;
    end if;

    -- 5. Decide.
    if v_algorithm = 'token-bucket' then
        v_start := v_last_at;
        if v_head_version < v_version then
            select c.o_level, c.o_at
            into v_level, v_start
            from zone_level_carry(p_zone_id, v_head_version, v_version, v_level, v_last_at, v_now) c;
        end if;
        if v_level is null then
            v_level := v_limit * v_per_token;
        else
            v_missing := v_limit * v_per_token - v_level;
            v_elapsed_us := extract(epoch from v_now - v_start) * 1000000;
            if v_missing <= 0 or v_elapsed_us >= (v_missing + (v_per_us - 1)) / v_per_us then
                v_level := v_limit * v_per_token;
            else
                v_level := v_level + v_elapsed_us * v_per_us;
            end if;
        end if;
        if v_cost > v_limit then
            v_reason := 'exceeds_limit';
        elsif v_cost * v_per_token > v_level then
            v_reason := 'over_limit';
            v_wait_us := (v_cost * v_per_token - v_level + (v_per_us - 1)) / v_per_us;
        else
            v_level := v_level - v_cost * v_per_token;
            v_spent := v_cost;
        end if;
        v_remaining := v_level / v_per_token;
    else
        v_level := null;
        v_start := v_now - v_window;
        v_base := v_spent_total;
        if v_seq > 0 and v_last_at > v_start then
            select t.spent_total - t.spent
            into v_base
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at > v_start
            order by t.created_at, t.seq
            limit 1;
            if not found then
                perform zone_error('ledger', p_zone_id::text);
            end if;
        end if;
        v_remaining := greatest(v_limit - (v_spent_total - v_base), 0);
        if v_cost > v_limit then
            v_reason := 'exceeds_limit';
        elsif v_spent_total - v_base > v_limit - v_cost then
            v_reason := 'over_limit';
            select t.created_at
            into v_reached_at
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key
                and t.spent > 0 and t.spent_total >= v_spent_total - v_limit + v_cost
            order by t.spent_total
            limit 1;
            if not found then
                perform zone_error('ledger', p_zone_id::text);
            end if;
            v_wait_us := extract(epoch from v_reached_at - v_start) * 1000000;
        else
            v_remaining := v_remaining - v_cost;
            v_spent := v_cost;
        end if;
    end if;
    if p_checks is not null then
        v_reason := 'over_limit';
        v_wait_us := null;
    end if;

    -- 6. Append, and move the head.
    if v_recorded then
        if v_spent_total > 9223372036854775807 - v_spent then
            perform zone_error('total', v_spent_total::text, v_spent::text);
        end if;
        v_seq := v_seq + 1;
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, cost, spent,
            spent_total, remaining, retry_after_us, level, created_at, prev_at
        )
        values (
            v_txn_id, p_zone_id, v_version, p_bucket_key, v_seq,
            case when p_checks is null then 'check' else 'coalesced' end, coalesce(p_checks, 1),
            v_reason <> 'within_limit', v_reason, p_cost, v_spent, v_spent_total + v_spent,
            v_remaining, v_wait_us, v_level, v_now, v_last_at
        )
        returning zone_txn.id into v_id;
        update zone_bucket_lock b
        set seq = v_seq,
            last_at = v_now,
            spent_total = v_spent_total + v_spent,
            level = v_level,
            zone_version = v_version
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    else
        v_seq := null;
    end if;
    return (
        v_id, v_txn_id, p_zone_id, v_version, p_bucket_key, v_seq, v_reason <> 'within_limit', v_reason, p_cost,
        v_limit, v_remaining, v_wait_us, v_now, false
    )::zone_decision;
end
$$;
