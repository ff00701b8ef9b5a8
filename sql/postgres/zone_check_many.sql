-- zone_check_many: N checks in one call, with the same decisions as N calls in that order, all at one time.
--
-- Joins the caller's transaction. All or nothing happens: an error in one check undoes the others. Of plain zones
-- and buckets (see zone_check), whatever N is, the tables are touched by the same few statements, and the decisions in
-- between touch none. Checks of others are decided in their turn as zone_check would, at the time of the call.
--
-- Arguments  arrays of one length, one element for each check, with the meaning of zone_check's,
--            p_zone_ids or p_zones; p_record and those from p_critical on may be null, which is the default for all; p_lock_wait_ms as there
--            p_skip_locked   do not wait for buckets that another transaction holds: their checks come back
--                            undecided and leave nothing behind
--            p_own           as in zone_check; one zone that is durable makes the whole call wait
-- Result     one zone_decision for each, in the order of the arrays; blocked is null where it is undecided
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_check
create function zone_check_many(
    p_zone_ids     int[],
    p_bucket_keys  text[],
    p_txn_ids      uuid[],
    p_costs        bigint[],
    p_record       boolean[],
    p_lock_wait_ms int     default null,
    p_skip_locked  boolean default false,
    p_own          boolean default false,
    p_critical     boolean[] default null,
    p_members      text[]  default null,
    p_ttls_us      bigint[] default null
)
returns setof zone_decision
language plpgsql
security definer
set search_path from current
-- Plans that are made once and read by index, whatever the statistics know of these buckets so far.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
-- Up to PostgreSQL 17 what is switched off counts as dear, and what is dear is compiled: 100 ms for each call.
set jit = off
as $$
declare
    c_count        constant int := coalesce(cardinality(p_zone_ids), 0);
    c_nothing      constant bigint[] := array_fill(null::bigint, array[c_count]);
    -- the buckets in byte order, and how many checks each has
    v_zone_ids     int[];
    v_bucket_keys  text[];
    v_held         boolean[];
    v_checks       int[];
    v_special      boolean[];
    v_heads        zone_bucket_lock[];
    -- the checks' positions, bucket by bucket; and where the first check of the same transaction stands
    v_order        int[];
    v_first        int[];
    v_index        int := 0;
    v_position     int;
    -- a bucket: its policy, and its head as the checks move it
    v_bucket       record;
    v_head         zone_bucket_lock;
    v_zone         zone_version;
    v_verdict      zone_verdict;
    v_durable      boolean := false;
    v_now          timestamptz;
    v_decided_at   timestamptz;
    v_seq          bigint;
    v_last_at      timestamptz;
    v_spent_total  bigint;
    v_level        bigint;
    v_missing      bigint;
    v_elapsed_us   bigint;
    -- a check and its decision
    v_cost         bigint;
    v_recorded     boolean;
    v_txn_id       uuid;
    v_reason       text;
    v_remaining    bigint;
    v_wait_us      bigint;
    v_spent        bigint;
    v_must_leave   bigint;
    v_decision     zone_decision;
    v_past         record;
    -- what comes of the checks, by position
    v_decisions    zone_decision[] := array_fill(null::zone_decision, array[c_count]);
    v_spent_totals bigint[] := c_nothing;
    v_levels       bigint[] := c_nothing;
    v_strikes      bigint[] := c_nothing;
    v_prev_ats     timestamptz[] := array_fill(null::timestamptz, array[c_count]);
    -- the chain: what a bucket's first new row follows, its salt where that is the first of all, and each row's hash;
    -- and by bucket the position of the last new row
    v_prev_hashes  bytea[] := array_fill(null::bytea, array[c_count]);
    v_salts        bytea[] := array_fill(null::bytea, array[c_count]);
    v_hashes       bytea[] := array_fill(null::bytea, array[c_count]);
    v_lasts        int[];
    v_row          record;
    v_row_hash     bytea;
    -- the totals that must leave a window that began at v_wait_starts, and which of them a check waits for
    v_waits        int := 0;
    v_wait_zones   int[];
    v_wait_keys    text[];
    v_wait_totals  bigint[];
    v_wait_starts  timestamptz[];
    v_wait_times   bigint[];
    v_wait_of      bigint[] := c_nothing;
begin
    -- 1. Validate. Keys are looked at when the bucket's row is made: where it exists, they are good.
    perform zone_error('arrays', c_count::text)
    from (
        values (cardinality(p_bucket_keys), array_dims(p_bucket_keys)), (cardinality(p_txn_ids), array_dims(p_txn_ids)),
            (cardinality(p_costs), array_dims(p_costs)), (c_count, array_dims(p_zone_ids)),
            (coalesce(cardinality(p_record), c_count), array_dims(p_record)),
            (coalesce(cardinality(p_critical), c_count), array_dims(p_critical)),
            (coalesce(cardinality(p_members), c_count), array_dims(p_members)),
            (coalesce(cardinality(p_ttls_us), c_count), array_dims(p_ttls_us))
    ) as a (count, dims)
    where a.count is distinct from c_count or a.dims <> format('[1:%s]', c_count);
    perform zone_error('cost', c.cost::text)
    from unnest(p_costs) as c (cost)
    where c.cost is null or c.cost not between 0 and 1099511627776;
    perform zone_error('nil txn')
    from unnest(p_txn_ids) as c (txn_id)
    where c.txn_id = '00000000-0000-0000-0000-000000000000';
    perform zone_check_validate(c.cost, c.member, c.ttl_us)
    from unnest(p_costs, p_members, p_ttls_us) as c (cost, member, ttl_us)
    where c.member is not null or c.ttl_us is not null;

    -- 2. Lock the buckets. A peek only looks.
    select array_agg(b.zone_id), array_agg(b.bucket_key), array_agg(b.held), array_agg(b.checks), array_agg(b.special)
    into v_zone_ids, v_bucket_keys, v_held, v_checks, v_special
    from (
        select c.zone_id, c.bucket_key collate "C" as bucket_key, count(*)::int as checks,
            bool_or(c.cost > 0 or coalesce(c.record, false)) as held,
            bool_or(c.member is not null or c.ttl_us is not null) as special
        from unnest(p_zone_ids, p_bucket_keys, p_costs, p_record, p_members, p_ttls_us)
            as c (zone_id, bucket_key, cost, record, member, ttl_us)
        group by c.zone_id, c.bucket_key collate "C"
        order by c.zone_id, c.bucket_key collate "C"
    ) b;
    select array_agg(c.position order by c.zone_id, c.bucket_key collate "C", c.position)
    into v_order
    from unnest(p_zone_ids, p_bucket_keys) with ordinality as c (zone_id, bucket_key, position);
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    v_heads := zone_bucket_hold(v_zone_ids, v_bucket_keys, v_held, p_skip_locked);
    v_lasts := array_fill(null::int, array[coalesce(cardinality(v_zone_ids), 0)]);

    -- 3. The clock, after the locks.
    v_now := pg_catalog.clock_timestamp();

    -- 4. What was decided before: in the ledger, or by this very call. New buckets are not in the ledger.
    if exists (select from unnest(v_heads) h where h.seq > 0) then
        for v_past in
            select c.position, c.cost as asked, t.kind <> 'unchecked' and t.member is distinct from c.member as other,
                (
                    t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.blocked, t.reason, t.cost,
                    t.zone_limit, t.remaining, t.retry_after_us, t.delay_us, t.ends_at, t.created_at, true
                )::zone_decision as decision
            from unnest(p_zone_ids, p_bucket_keys, p_txn_ids, p_costs, p_record, p_members) with ordinality
                as c (zone_id, bucket_key, txn_id, cost, record, member, position)
            -- The first row from there on: in this order there is one index only to read it by. Asked for the row
            -- itself, a plan that was made while the ledger was small may go by zone or by bucket alone.
            cross join lateral (
                select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.blocked, t.reason, t.cost,
                    t.zone_limit, t.remaining, t.retry_after_us, t.delay_us, t.ends_at, t.created_at, t.kind, t.member
                from zone_txn t
                where (t.zone_id, t.bucket_key, t.txn_id) >= (c.zone_id, c.bucket_key, c.txn_id)
                    and t.kind in ('check', 'reserve', 'coalesced', 'unchecked')
                order by t.zone_id, t.bucket_key, t.txn_id
                limit 1
            ) t
            where (c.cost > 0 or c.record) and c.txn_id is not null
                and t.zone_id = c.zone_id and t.bucket_key = c.bucket_key and t.txn_id = c.txn_id
        loop
            v_decision := v_past.decision;
            if v_decision.cost <> v_past.asked then
                perform zone_error('other cost', v_decision.txn_id::text, v_decision.cost::text, v_past.asked::text);
            end if;
            if v_past.other then
                perform zone_error('other member', v_decision.txn_id::text);
            end if;
            v_decisions[v_past.position] := v_decision;
        end loop;
    end if;
    if cardinality(v_zone_ids) < c_count then
        select array_agg(c.first order by c.position)
        into v_first
        from (
            select c.position,
                min(c.position) filter (where c.cost > 0 or c.record)
                    over (partition by c.txn_id, c.zone_id, c.bucket_key collate "C") as first
            from unnest(p_zone_ids, p_bucket_keys, p_txn_ids, p_costs, p_record) with ordinality
                as c (zone_id, bucket_key, txn_id, cost, record, position)
        ) c;
    end if;

    -- 5. Policy and ledger, by a statement that began after the locks; and decide.
    for v_bucket in
        select k.zone_id, k.bucket_key, k.held, k.checks, k.seq, k.last_at, k.spent_total, k.level, k.strikes, k.salt,
            k.row_hash, k.now, k.position, z.version, z.algorithm, z.durability, z.zone_limit, z.window_us, z.window_start, z.per_us,
            z.per_token, z.plain and coalesce(k.carried_at <= z.window_start, true) as plain, w.base
        from (
            select k.zone_id, k.bucket_key, k.held, k.checks, k.seq, k.last_at, k.spent_total, k.level, k.strikes,
                k.carried_at, k.head_version, k.salt, k.row_hash, greatest(v_now, k.last_at) as now, k.position,
                not k.special and k.override_seq is null and not coalesce(k.holding, false)
                    and coalesce(k.banned_until <= greatest(v_now, k.last_at), true) as plain
            from unnest(v_zone_ids, v_bucket_keys, v_held, v_checks, v_special, v_heads) with ordinality as k (
                zone_id, bucket_key, held, checks, special, seq, last_at, spent_total, level, strikes, banned_until,
                ban_strikes, carried, carried_at, carried_total, carried_seq, override_seq, head_zone_id, head_version,
                bans, holding, head_key, salt, row_hash, position
            )
        ) k
        left join lateral (
            select z.version, z.algorithm, z.durability, coalesce(z.burst, z.rate) as zone_limit, z.window_us,
                k.now - z.window_us * interval '1 microsecond' as window_start, z.rate / z.rate_gcd as per_us,
                z.window_us / z.rate_gcd as per_token,
                k.plain and coalesce(k.head_version = z.version, true)
                    and z.algorithm in ('sliding-log', 'token-bucket') and z.mode = 'enforce' and z.soft_rate is null
                    and z.reserve = 0 and z.ban_after is null and not z.count_blocked as plain
            from zone_master z
            where z.id = k.zone_id
            offset 0 -- keeps the subquery whole: as a join it could be read in full
        ) z on true
        left join lateral (
            select t.spent_total - t.spent as base
            from zone_txn t
            where z.plain and z.algorithm = 'sliding-log' and k.last_at > z.window_start
                and t.zone_id = k.zone_id and t.bucket_key = k.bucket_key and t.created_at > z.window_start
            order by t.created_at, t.seq
            limit 1
        ) w on true
        order by k.position
    loop
        if v_bucket.version is null then
            perform zone_error('no zone', v_bucket.zone_id::text);
        end if;
        if v_bucket.held and v_bucket.seq is not null and v_bucket.durability <> 'relaxed' then
            v_durable := true;
        end if;
        v_decided_at := v_bucket.now;
        v_seq := coalesce(v_bucket.seq, 0);
        v_last_at := v_bucket.last_at;
        v_spent_total := coalesce(v_bucket.spent_total, 0);
        v_level := null;
        if not v_bucket.plain then
            v_head := v_heads[v_bucket.position];
            if v_head.seq is null then
                v_head := zone_head_new(v_bucket.zone_id, v_bucket.bucket_key);
            end if;
            if (v_zone.zone_id, v_zone.version) is distinct from (v_bucket.zone_id, v_bucket.version) then
                v_zone := zone_version_of(v_bucket.zone_id, v_bucket.version);
            end if;
        elsif v_bucket.algorithm = 'token-bucket' then
            v_missing := v_bucket.zone_limit * v_bucket.per_token - v_bucket.level;
            v_elapsed_us := extract(epoch from v_decided_at - v_bucket.last_at) * 1000000;
            if v_bucket.level is null
                or v_missing <= 0
                or v_elapsed_us >= (v_missing + (v_bucket.per_us - 1)) / v_bucket.per_us
            then
                v_level := v_bucket.zone_limit * v_bucket.per_token;
            else
                v_level := v_bucket.level + v_elapsed_us * v_bucket.per_us;
            end if;
        elsif v_bucket.base is null then
            if v_last_at > v_bucket.window_start then
                perform zone_error('ledger', v_bucket.zone_id::text);
            end if;
            v_bucket.base := v_spent_total;
        end if;
        for v_nth in 1 .. v_bucket.checks loop
            v_index := v_index + 1;
            v_position := v_order[v_index];
            continue when (v_decisions[v_position]).replayed;
            v_cost := p_costs[v_position];
            v_txn_id := p_txn_ids[v_position];
            if v_bucket.held and v_bucket.seq is null then
                v_decisions[v_position] := (
                    null, v_txn_id, v_bucket.zone_id, null, v_bucket.bucket_key, null, null, null, v_cost, null, null,
                    null, null, null, null, null
                )::zone_decision;
                continue;
            end if;
            v_recorded := v_cost > 0 or coalesce(p_record[v_position], false);
            if v_txn_id is null then
                v_txn_id := zone_txn_id_make();
            elsif v_recorded and v_first[v_position] < v_position then
                v_decision := v_decisions[v_first[v_position]];
                if v_decision.cost <> v_cost then
                    perform zone_error('other cost', v_txn_id::text, v_decision.cost::text, v_cost::text);
                end if;
                if p_members[v_position] is distinct from p_members[v_first[v_position]] then
                    perform zone_error('other member', v_txn_id::text);
                end if;
                v_decision.replayed := true;
                v_decisions[v_position] := v_decision;
                v_wait_of[v_position] := v_wait_of[v_first[v_position]];
                continue;
            end if;

            if not v_bucket.plain then
                v_verdict := zone_decide(
                    v_zone, v_head, v_now, v_cost, coalesce(p_critical[v_position], false), p_members[v_position],
                    p_ttls_us[v_position]
                );
                if v_recorded then
                    v_decisions[v_position] := zone_record(
                        v_zone, v_verdict, v_head.last_at, v_txn_id, v_cost, coalesce(p_critical[v_position], false),
                        p_members[v_position], case when p_ttls_us[v_position] is null then 'check' else 'reserve' end
                    );
                    v_head := v_verdict.head;
                    v_head.row_hash := (
                        select b.row_hash
                        from zone_bucket_lock b
                        where b.zone_id = v_head.zone_id and b.bucket_key = v_head.bucket_key
                    );
                else
                    v_decisions[v_position] := zone_answer(v_zone, v_verdict, v_txn_id, v_cost);
                end if;
                continue;
            end if;
            v_reason := 'within_limit';
            v_wait_us := null;
            v_spent := 0;
            if v_bucket.algorithm = 'token-bucket' then
                if v_cost > v_bucket.zone_limit then
                    v_reason := 'exceeds_limit';
                elsif v_cost > 0 and v_cost * v_bucket.per_token > v_level then
                    v_reason := 'over_limit';
                    v_wait_us := least(
                        (v_cost * v_bucket.per_token - v_level + (v_bucket.per_us - 1)) / v_bucket.per_us,
                        9223372036854775807 - zone_us(v_decided_at)
                    );
                else
                    v_level := v_level - v_cost * v_bucket.per_token;
                    v_spent := v_cost;
                end if;
                v_remaining := greatest(v_level / v_bucket.per_token, 0);
            else
                v_remaining := greatest(v_bucket.zone_limit - (v_spent_total - v_bucket.base), 0);
                if v_cost > v_bucket.zone_limit then
                    v_reason := 'exceeds_limit';
                elsif v_cost > 0 and v_spent_total - v_bucket.base > v_bucket.zone_limit - v_cost then
                    v_reason := 'over_limit';
                    v_must_leave := v_spent_total - v_bucket.zone_limit + v_cost;
                    if v_must_leave > coalesce(v_bucket.spent_total, 0) then
                        -- Reached by a charge of this very call.
                        v_wait_us := v_bucket.window_us;
                    else
                        if v_waits = 0
                            or v_wait_totals[v_waits] <> v_must_leave
                            or v_wait_keys[v_waits] <> v_bucket.bucket_key
                            or v_wait_zones[v_waits] <> v_bucket.zone_id
                        then
                            v_waits := v_waits + 1;
                            v_wait_zones[v_waits] := v_bucket.zone_id;
                            v_wait_keys[v_waits] := v_bucket.bucket_key;
                            v_wait_totals[v_waits] := v_must_leave;
                            v_wait_starts[v_waits] := v_bucket.window_start;
                        end if;
                        v_wait_of[v_position] := v_waits;
                    end if;
                else
                    v_remaining := v_remaining - v_cost;
                    v_spent := v_cost;
                end if;
            end if;
            if not v_recorded then
                v_decisions[v_position] := (
                    null, v_txn_id, v_bucket.zone_id, v_bucket.version, v_bucket.bucket_key, null,
                    v_reason <> 'within_limit', v_reason, v_cost, v_bucket.zone_limit, v_remaining, v_wait_us, null,
                    null, v_decided_at, false
                )::zone_decision;
                continue;
            end if;
            if v_spent_total > 9223372036854775807 - v_spent then
                perform zone_error('total', v_spent_total::text, v_spent::text);
            end if;
            if v_seq = v_bucket.seq then
                v_prev_hashes[v_position] := v_bucket.row_hash;
                v_salts[v_position] := case when v_seq = 0 then v_bucket.salt end;
            end if;
            v_lasts[v_bucket.position] := v_position;
            v_seq := v_seq + 1;
            v_spent_total := v_spent_total + v_spent;
            v_decisions[v_position] := (
                nextval('zone_txn_id_seq'), v_txn_id, v_bucket.zone_id, v_bucket.version, v_bucket.bucket_key, v_seq,
                v_reason <> 'within_limit', v_reason, v_cost, v_bucket.zone_limit, v_remaining, v_wait_us, null, null,
                v_decided_at, false
            )::zone_decision;
            v_spent_totals[v_position] := v_spent_total;
            v_levels[v_position] := v_level;
            v_strikes[v_position] := v_bucket.strikes;
            v_prev_ats[v_position] := v_last_at;
            v_last_at := v_decided_at;
        end loop;
        if v_bucket.plain and v_seq > v_bucket.seq then
            -- Of a plain head the rest stays as it is.
            v_heads[v_bucket.position] := (
                v_seq, v_last_at, v_spent_total, v_level, null, null, null, null, null, null, null, null,
                v_bucket.zone_id, v_bucket.version, null, null, v_bucket.bucket_key, null, null
            )::zone_bucket_lock;
        else
            v_heads[v_bucket.position] := null;
        end if;
    end loop;
    if v_waits > 0 then
        select array_agg(extract(epoch from t.created_at - w.start) * 1000000 order by w.position)
        into v_wait_times
        from unnest(v_wait_zones, v_wait_keys, v_wait_totals, v_wait_starts) with ordinality
            as w (zone_id, bucket_key, total, start, position)
        left join lateral (
            select t.created_at
            from zone_txn t
            where t.zone_id = w.zone_id and t.bucket_key = w.bucket_key and t.spent > 0 and t.spent_total >= w.total
            order by t.spent_total
            limit 1
        ) t on true;
        v_position := array_position(v_wait_times, null);
        if v_position is not null then
            perform zone_error('ledger', v_wait_zones[v_position]::text);
        end if;
        for v_position in 1 .. cardinality(v_wait_of) loop
            continue when v_wait_of[v_position] is null;
            v_decision := v_decisions[v_position];
            v_decision.retry_after_us := v_wait_times[v_wait_of[v_position]];
            v_decisions[v_position] := v_decision;
        end loop;
    end if;

    if p_own and not v_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- 6. Chain, append, and move the heads.
    for v_row in
        select d.position, d.prev_hash,
            zone_txn_bytes(
                d.txn_id, d.seq, d.zone_version, 1, d.blocked, coalesce(d.critical, false), d.cost,
                case when d.blocked then 0 else d.cost end, d.spent_total, d.remaining, d.zone_limit, d.retry_after_us,
                null, d.level, d.strikes, null, d.created_at, null, 'check', d.reason
            ) as bytes
        from unnest(v_decisions, v_spent_totals, v_levels, v_strikes, p_critical, v_prev_hashes) with ordinality as d (
            id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit, remaining,
            retry_after_us, delay_us, ends_at, created_at, replayed, spent_total, level, strikes, critical, prev_hash,
            position
        )
        where d.spent_total is not null
        order by d.zone_id, d.bucket_key collate "C", d.seq
    loop
        v_row_hash := sha256(coalesce(v_row.prev_hash, v_row_hash) || v_row.bytes);
        v_hashes[v_row.position] := v_row_hash;
    end loop;
    insert into zone_txn (
        id, txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, critical, cost, spent, spent_total,
        remaining, zone_limit, retry_after_us, level, strikes, created_at, prev_at, salt, row_hash
    )
    select d.id, d.txn_id, d.zone_id, d.zone_version, d.bucket_key, d.seq, 'check', d.blocked, d.reason,
        coalesce(d.critical, false), d.cost, case when d.blocked then 0 else d.cost end, d.spent_total, d.remaining,
        d.zone_limit, d.retry_after_us, d.level, d.strikes, d.created_at, d.prev_at, d.salt, d.row_hash
    from unnest(
        v_decisions, v_spent_totals, v_levels, v_strikes, v_prev_ats, p_critical, v_salts, v_hashes
    ) as d (
        id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit, remaining,
        retry_after_us, delay_us, ends_at, created_at, replayed, spent_total, level, strikes, prev_at, critical, salt,
        row_hash
    )
    where d.spent_total is not null;
    update zone_bucket_lock b
    set seq = h.seq,
        last_at = h.last_at,
        spent_total = h.spent_total,
        level = h.level,
        zone_version = h.zone_version,
        row_hash = v_hashes[h.last]
    from unnest(v_heads, v_lasts) as h (
        seq, last_at, spent_total, level, strikes, banned_until, ban_strikes, carried, carried_at, carried_total,
        carried_seq, override_seq, zone_id, zone_version, bans, holding, bucket_key, salt, row_hash, last
    )
    where b.zone_id = h.zone_id and b.bucket_key = h.bucket_key;
    return query
        select d.id, d.txn_id, d.zone_id, d.zone_version, d.bucket_key, d.seq, d.blocked, d.reason, d.cost,
            d.zone_limit, d.remaining, d.retry_after_us, d.delay_us, d.ends_at, d.created_at, d.replayed
        from unnest(v_decisions) d;
end
$$;

-- By the zones' names.
create function zone_check_many(
    p_zones        text[],
    p_bucket_keys  text[],
    p_txn_ids      uuid[],
    p_costs        bigint[],
    p_record       boolean[],
    p_lock_wait_ms int     default null,
    p_skip_locked  boolean default false,
    p_own          boolean default false,
    p_critical     boolean[] default null,
    p_members      text[]  default null,
    p_ttls_us      bigint[] default null
)
returns setof zone_decision
language sql
security definer
set search_path from current
as $$
    select zone_check_many(
        (select array_agg(zone_number(z.name) order by z.n) from unnest(p_zones) with ordinality z (name, n)),
        p_bucket_keys, p_txn_ids, p_costs, p_record, p_lock_wait_ms, p_skip_locked, p_own, p_critical,
        p_members, p_ttls_us
    )
$$;
