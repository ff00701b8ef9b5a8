-- zone_check_all: several limits of one transaction: all pass, or none is spent from.
--
-- Joins the caller's transaction. When one blocks, those that would have passed are blocked as held_back and spend
-- nothing; a zone in shadow mode holds nothing back. Each has its row in the ledger.
--
-- Arguments  p_zone_ids or p_zones, p_bucket_keys, p_costs  arrays of one length, one element for each limit, with the meaning of
--                            zone_check's; each bucket once
--            p_txn_id        the transaction of all; null makes a version 7 UUID
--            p_record        leave a row even for a peek; null for none
--            p_lock_wait_ms  as in zone_check
--            p_own           as in zone_check; one zone that is durable makes the whole call wait
--            p_critical, p_members, p_ttls_us  arrays as those above, or null, which is the default for all
-- Result     one zone_decision for each, in the order of the arrays
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_check; TG002 also when the transaction was decided in some of the buckets only
create function zone_check_all(
    p_zone_ids     int[],
    p_bucket_keys  text[],
    p_txn_id       uuid,
    p_costs        bigint[],
    p_record       boolean[] default null,
    p_lock_wait_ms int       default null,
    p_own          boolean   default false,
    p_critical     boolean[] default null,
    p_members      text[]    default null,
    p_ttls_us      bigint[]  default null
)
returns setof zone_decision
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_check.
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    c_count     constant int := coalesce(cardinality(p_zone_ids), 0);
    v_txn_id    constant uuid := coalesce(p_txn_id, zone_txn_id_make());
    v_now       timestamptz;
    -- the limits in the byte order of their buckets: their positions, and whether they leave a row
    v_order     int[];
    v_held      boolean[];
    v_head      zone_bucket_lock;
    v_position  int;
    v_cost      bigint;
    v_version   int;
    v_relaxed   boolean;
    v_durable   boolean := false;
    -- by position
    v_zones     zone_version[] := array_fill(null::zone_version, array[c_count]);
    v_states    zone_bucket_lock[] := array_fill(null::zone_bucket_lock, array[c_count]);
    v_recorded  boolean[] := array_fill(false, array[c_count]);
    v_verdicts  zone_verdict[] := array_fill(null::zone_verdict, array[c_count]);
    v_decisions zone_decision[] := array_fill(null::zone_decision, array[c_count]);
    v_past      zone_decision;
    v_told      int := 0;
    v_blocked   boolean := false;
begin
    -- 1. Validate.
    perform zone_error('arrays', c_count::text)
    from (
        values (cardinality(p_bucket_keys), array_dims(p_bucket_keys)), (c_count, array_dims(p_zone_ids)),
            (cardinality(p_costs), array_dims(p_costs)),
            (coalesce(cardinality(p_record), c_count), array_dims(p_record)),
            (coalesce(cardinality(p_critical), c_count), array_dims(p_critical)),
            (coalesce(cardinality(p_members), c_count), array_dims(p_members)),
            (coalesce(cardinality(p_ttls_us), c_count), array_dims(p_ttls_us))
    ) as a (count, dims)
    where a.count is distinct from c_count or a.dims <> format('[1:%s]', c_count);
    perform zone_error('cost', c.cost::text)
    from unnest(p_costs) as c (cost)
    where c.cost is null or c.cost not between 0 and 1099511627776;
    if p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('nil txn');
    end if;
    perform zone_check_validate(c.cost, c.member, c.ttl_us)
    from unnest(p_costs, p_members, p_ttls_us) as c (cost, member, ttl_us)
    where c.member is not null or c.ttl_us is not null;
    perform zone_error('same bucket', min(c.bucket_key), c.zone_id::text)
    from unnest(p_zone_ids, p_bucket_keys) as c (zone_id, bucket_key)
    group by c.zone_id, c.bucket_key collate "C"
    having count(*) > 1;

    -- 2. Lock the buckets. A peek only looks.
    select array_agg(c.position order by c.zone_id, c.bucket_key collate "C"),
        array_agg(c.cost > 0 or coalesce(c.record, false) order by c.zone_id, c.bucket_key collate "C")
    into v_order, v_held
    from unnest(p_zone_ids, p_bucket_keys, p_costs, p_record) with ordinality
        as c (zone_id, bucket_key, cost, record, position);
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    for v_nth in 1 .. c_count loop
        v_position := v_order[v_nth];
        if v_held[v_nth] then
            v_head := zone_bucket_take(p_zone_ids[v_position], p_bucket_keys[v_position], null);
        else
            select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried,
                b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans,
                b.holding, b.bucket_key, b.salt, b.row_hash, b.moved_to
            into v_head
            from zone_bucket_lock b
            where b.zone_id = p_zone_ids[v_position] and b.bucket_key = p_bucket_keys[v_position];
            if not found then
                v_head := zone_head_new(p_zone_ids[v_position], p_bucket_keys[v_position]);
            end if;
            if v_head.moved_to is not null then
                perform zone_error('elsewhere', v_head.moved_to);
            end if;
        end if;
        v_states[v_position] := v_head;
    end loop;

    -- 3. The clock, after the locks.
    v_now := pg_catalog.clock_timestamp();

    -- 4. The decisions that were made before: of all of them, or of none.
    for v_nth in 1 .. c_count loop
        v_position := v_order[v_nth];
        v_recorded[v_position] := v_held[v_nth];
        if v_held[v_nth] and p_txn_id is not null and (v_states[v_position]).seq > 0 then
            v_past := zone_past(
                p_zone_ids[v_position], p_bucket_keys[v_position], p_txn_id, p_costs[v_position], p_members[v_position]
            );
            if v_past.id is not null then
                v_decisions[v_position] := v_past;
                v_told := v_told + 1;
            end if;
        end if;
    end loop;
    if v_told > 0 and v_told < cardinality(array_positions(v_held, true)) then
        perform zone_error('part', v_txn_id::text);
    end if;

    -- 5. Decide each by itself, and again those that another one holds back.
    for v_position in 1 .. c_count loop
        continue when (v_decisions[v_position]).replayed;
        select z.version, z.durability = 'relaxed'
        into v_version, v_relaxed
        from zone_master z
        where z.id = p_zone_ids[v_position];
        if not found then
            perform zone_error('no zone', p_zone_ids[v_position]::text);
        end if;
        v_durable := v_durable or (v_recorded[v_position] and not v_relaxed);
        v_zones[v_position] := zone_version_of(p_zone_ids[v_position], v_version);
        v_verdicts[v_position] := zone_decide(
            v_zones[v_position], v_states[v_position], v_now, p_costs[v_position],
            coalesce(p_critical[v_position], false), p_members[v_position], p_ttls_us[v_position]
        );
        v_blocked := v_blocked or (v_verdicts[v_position]).blocked;
    end loop;
    for v_position in 1 .. c_count loop
        continue when not v_blocked or (v_verdicts[v_position]).reason not in ('within_limit', 'soft', 'off');
        v_verdicts[v_position] := zone_decide(
            v_zones[v_position], v_states[v_position], v_now, p_costs[v_position],
            coalesce(p_critical[v_position], false), p_members[v_position], p_ttls_us[v_position], true
        );
    end loop;
    if p_own and not v_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- 6. Append, and move the heads.
    for v_position in 1 .. c_count loop
        continue when (v_decisions[v_position]).replayed;
        if v_recorded[v_position] then
            v_decisions[v_position] := zone_record(
                v_zones[v_position], v_verdicts[v_position], (v_states[v_position]).last_at, v_txn_id,
                p_costs[v_position], coalesce(p_critical[v_position], false), p_members[v_position],
                case when p_ttls_us[v_position] is null then 'check' else 'reserve' end
            );
        else
            v_decisions[v_position] := zone_answer(
                v_zones[v_position], v_verdicts[v_position], v_txn_id, p_costs[v_position]
            );
        end if;
    end loop;
    -- A row's waits count from its own time, those of the answer from now.
    return query
        select d.id, d.txn_id, d.zone_id, d.zone_version, d.bucket_key, d.seq, d.blocked, d.reason, d.cost,
            d.zone_limit, d.remaining, d.retry_after_us + a.ahead_us, d.delay_us + a.ahead_us, d.ends_at, d.created_at,
            d.replayed
        from unnest(v_decisions) d,
            lateral (select case when d.replayed then 0 else greatest(zone_us(d.created_at) - zone_us(v_now), 0) end) a (ahead_us);
end
$$;

-- By the zones' names.
create function zone_check_all(
    p_zones        text[],
    p_bucket_keys  text[],
    p_txn_id       uuid,
    p_costs        bigint[],
    p_record       boolean[] default null,
    p_lock_wait_ms int       default null,
    p_own          boolean   default false,
    p_critical     boolean[] default null,
    p_members      text[]    default null,
    p_ttls_us      bigint[]  default null
)
returns setof zone_decision
language sql
security definer
set search_path from current
as $$
    select zone_check_all(
        (select array_agg(zone_number(z.name) order by z.n) from unnest(p_zones) with ordinality z (name, n)),
        p_bucket_keys, p_txn_id, p_costs, p_record, p_lock_wait_ms, p_own, p_critical, p_members,
        p_ttls_us
    )
$$;
