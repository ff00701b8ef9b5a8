-- zone_check: decides one check and records it.
--
-- Joins the caller's transaction: the decision is committed, or taken back, with it.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket, 1 to 255 bytes without control characters
--            p_txn_id        the transaction; null makes a version 7 UUID
--            p_cost          what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_record        leave a row even for a peek
--            p_lock_wait_ms  the longest wait for a lock, up to the end of the transaction; null leaves
--                            the session's lock_timeout as it is
--            p_own           the transaction is this call's own: where the zone is relaxed, its commit need
--                            not wait for the disk
--            p_checks        null: an ordinary check. Else so many checks which were answered blocked from
--                            memory are recorded as one row: nothing is decided or spent
--            p_critical      it may take from what the zone keeps in reserve
--            p_member        whom it is about, where members are counted: 1 to 255 bytes, as a key
--            p_ttl_us        a reservation: what it spends ends by itself after so many microseconds
-- Result     one zone_decision
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 the transaction was decided with another cost
--            or about another member; TG003 a value is out of range, or the zone has no use for it; TG004 the bucket's total is full;
--            TG005 the ledger lacks rows of the window; 55P03 the lock was not had in time
create function zone_check(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid    default null,
    p_cost         bigint  default 1,
    p_record       boolean default false,
    p_lock_wait_ms int     default null,
    p_own          boolean default false,
    p_checks       int     default null,
    p_critical     boolean default false,
    p_member       text    default null,
    p_ttl_us       bigint  default null
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
    v_txn_id      uuid := p_txn_id;
    -- the bucket's head
    v_head        zone_bucket_lock;
    -- the policy
    v_version     int;
    v_algorithm   text;
    v_durability  text;
    v_limit       bigint;
    v_window      interval;
    v_per_us      bigint;
    v_per_token   bigint;
    v_plain       boolean;
    v_zone        zone_version;
    -- the decision
    v_now         timestamptz;
    v_ahead_us    bigint := 0; -- how long before v_now it is
    v_start       timestamptz;
    v_base        bigint;
    v_missing     bigint;
    v_elapsed_us  bigint;
    v_reason      text := 'within_limit';
    v_level       bigint;
    v_remaining   bigint;
    v_wait_us     bigint;
    v_spent       bigint := 0;
    v_row_hash    bytea;
    v_id          bigint;
    v_told        zone_decision;
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
    if p_member is not null or p_ttl_us is not null then
        perform zone_check_validate(p_cost, p_member, p_ttl_us);
    end if;

    -- 2. Lock the bucket. A peek only looks.
    if v_recorded then
        if p_lock_wait_ms is not null then
            perform set_config('lock_timeout', p_lock_wait_ms::text, true);
        end if;
        loop
            select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried,
                b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans,
                b.holding, b.bucket_key, b.salt, b.row_hash, b.moved_to
            into v_head
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
            for no key update;
            exit when found;
            perform zone_bucket_open(p_zone_id, p_bucket_key);
        end loop;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried,
            b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans,
            b.holding, b.bucket_key, b.salt, b.row_hash, b.moved_to
        into v_head
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
        if not found then
            v_head := zone_head_new(p_zone_id, p_bucket_key);
        end if;
    end if;
    if v_head.moved_to is not null then
        perform zone_error('elsewhere', v_head.moved_to);
    end if;

    -- 3. The clock, after the lock. Time never moves backwards within a bucket.
    v_now := pg_catalog.clock_timestamp();
    if v_head.last_at > v_now then
        v_ahead_us := extract(epoch from v_head.last_at - v_now) * 1000000;
        v_now := v_head.last_at;
    end if;

    -- 4. Policy and ledger, each by a statement that began after the lock.
    select z.version, z.algorithm, coalesce(z.burst, z.rate), z.window_us * interval '1 microsecond',
        z.rate / z.rate_gcd, z.window_us / z.rate_gcd, z.durability,
        z.algorithm in ('sliding-log', 'token-bucket') and z.mode = 'enforce' and z.soft_rate is null
            and z.reserve = 0 and z.ban_after is null and not z.count_blocked
    into v_version, v_algorithm, v_limit, v_window, v_per_us, v_per_token, v_durability, v_plain
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
    elsif v_recorded and v_head.seq > 0 then
        v_told := zone_past(p_zone_id, p_bucket_key, v_txn_id, p_cost, p_member);
        if v_told.id is not null then
            return v_told;
        end if;
    end if;

    -- 5. Decide, append, and move the head. All that can be is in zone_decide; what most zones and buckets are is
    --    decided here, which saves a quarter of the time. A row's waits count from its own time, those of the answer from now.
    if not v_plain
        or v_head.zone_version <> v_version
        or v_head.banned_until > v_now
        or v_head.carried_at > v_now - v_window
        or v_head.override_seq is not null
        or v_head.holding
        or coalesce(p_member is not null or p_ttl_us is not null or p_checks is not null, false)
    then
        v_told := zone_check_held(
            p_zone_id, v_version, v_head, v_now, v_txn_id, p_cost, v_recorded, coalesce(p_critical, false), p_member,
            p_ttl_us, p_checks
        );
        v_told.retry_after_us := v_told.retry_after_us + v_ahead_us;
        v_told.delay_us := v_told.delay_us + v_ahead_us;
        return v_told;
    end if;
    if v_algorithm = 'token-bucket' then
        v_level := v_head.level;
        if v_level is null then
            v_level := v_limit * v_per_token;
        else
            v_missing := v_limit * v_per_token - v_level;
            v_elapsed_us := extract(epoch from v_now - v_head.last_at) * 1000000;
            if v_missing <= 0 or v_elapsed_us >= (v_missing + (v_per_us - 1)) / v_per_us then
                v_level := v_limit * v_per_token;
            else
                v_level := v_level + v_elapsed_us * v_per_us;
            end if;
        end if;
        if p_cost > v_limit then
            v_reason := 'exceeds_limit';
        elsif p_cost > 0 and p_cost * v_per_token > v_level then
            v_reason := 'over_limit';
            v_wait_us := least(
                (p_cost * v_per_token - v_level + (v_per_us - 1)) / v_per_us,
                9223372036854775807 - zone_us(v_now)
            );
        else
            v_level := v_level - p_cost * v_per_token;
            v_spent := p_cost;
        end if;
        v_remaining := greatest(v_level / v_per_token, 0);
    else
        v_start := v_now - v_window;
        v_base := v_head.spent_total;
        if v_head.last_at > v_start then
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
        v_remaining := greatest(v_limit - (v_head.spent_total - v_base), 0);
        if p_cost > v_limit then
            v_reason := 'exceeds_limit';
        elsif p_cost > 0 and v_head.spent_total - v_base > v_limit - p_cost then
            v_reason := 'over_limit';
            v_wait_us := zone_total_reached(
                p_zone_id, p_bucket_key, v_head.spent_total - v_limit + p_cost, zone_us(v_start), zone_us(v_head.last_at)
            ) - zone_us(v_start);
            if v_wait_us is null then
                perform zone_error('ledger', p_zone_id::text);
            end if;
        else
            v_remaining := v_remaining - p_cost;
            v_spent := p_cost;
        end if;
    end if;
    if not v_recorded then
        return (
            null, v_txn_id, p_zone_id, v_version, p_bucket_key, null, v_reason <> 'within_limit', v_reason, p_cost,
            v_limit, v_remaining, v_wait_us + v_ahead_us, null, null, v_now, false
        )::zone_decision;
    end if;
    if v_head.spent_total > 9223372036854775807 - v_spent then
        perform zone_error('total', v_head.spent_total::text, v_spent::text);
    end if;
    v_row_hash := sha256(v_head.row_hash || zone_txn_bytes(
        v_txn_id, v_head.seq + 1, v_version, 1, v_reason <> 'within_limit',
        coalesce(p_critical, false), p_cost, v_spent, v_head.spent_total + v_spent, v_remaining, v_limit, v_wait_us,
        null, v_level, v_head.strikes, null, v_now, null, 'check', v_reason
    ));
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, critical, cost, spent, spent_total,
        remaining, zone_limit, retry_after_us, level, strikes, created_at, prev_at, salt, row_hash
    )
    values (
        v_txn_id, p_zone_id, v_version, p_bucket_key, v_head.seq + 1, 'check', v_reason <> 'within_limit', v_reason,
        coalesce(p_critical, false), p_cost, v_spent, v_head.spent_total + v_spent, v_remaining, v_limit, v_wait_us,
        v_level, v_head.strikes, v_now, v_head.last_at, case when v_head.seq = 0 then v_head.salt end, v_row_hash
    )
    returning zone_txn.id into v_id;
    update zone_bucket_lock b
    set seq = v_head.seq + 1,
        last_at = v_now,
        spent_total = v_head.spent_total + v_spent,
        level = v_level,
        zone_version = v_version,
        row_hash = v_row_hash
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    return (
        v_id, v_txn_id, p_zone_id, v_version, p_bucket_key, v_head.seq + 1, v_reason <> 'within_limit', v_reason,
        p_cost, v_limit, v_remaining, v_wait_us + v_ahead_us, null, null, v_now, false
    )::zone_decision;
end
$$;

-- By the zone's name.
create function zone_check(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid    default null,
    p_cost         bigint  default 1,
    p_record       boolean default false,
    p_lock_wait_ms int     default null,
    p_own          boolean default false,
    p_checks       int     default null,
    p_critical     boolean default false,
    p_member       text    default null,
    p_ttl_us       bigint  default null
)
returns zone_decision
language sql
security definer
set search_path from current
as $$
    select zone_check(
        zone_number(p_zone),
        p_bucket_key, p_txn_id, p_cost, p_record, p_lock_wait_ms, p_own, p_checks, p_critical, p_member,
        p_ttl_us
    )
$$;
