-- zone_check_many: N checks in one call, decided by zone_check one after the other.
--
-- Joins the caller's transaction. All or nothing happens: an error in one check undoes the others.
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
-- For the reasons that are given in zone_check.
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    c_count    constant int := coalesce(cardinality(p_zone_ids), 0);
    v_recorded constant boolean[] := array(
        select c.cost > 0 or coalesce(c.record, false)
        from unnest(p_costs, p_record) with ordinality as c (cost, record, position)
        order by c.position
    );
    -- by check, which of the buckets it is of
    v_places   int[];
    -- the buckets in byte order, and whether nobody else holds them
    v_zone_ids int[];
    v_keys     text[];
    v_free     boolean[];
    v_lock_timeout text;
    v_decision zone_decision;
begin
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
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    v_lock_timeout := current_setting('lock_timeout');
    select array_agg(c.place order by c.position)
    into v_places
    from (
        select dense_rank() over (order by c.zone_id, c.bucket_key collate "C") as place, c.position
        from unnest(p_zone_ids, p_bucket_keys) with ordinality as c (zone_id, bucket_key, position)
    ) c;
    select array_agg(b.zone_id order by b.place), array_agg(b.bucket_key order by b.place),
        array_agg(not b.held order by b.place)
    into v_zone_ids, v_keys, v_free
    from (
        select c.zone_id, c.bucket_key collate "C" as bucket_key, bool_or(c.held) as held,
            row_number() over (order by c.zone_id, c.bucket_key collate "C") as place
        from unnest(p_zone_ids, p_bucket_keys, v_recorded) as c (zone_id, bucket_key, held)
        group by c.zone_id, c.bucket_key collate "C"
    ) b;
    -- One by one, since Citus finds a bucket's shard by a statement about that bucket. Twice where some are missing: a row
    -- that somebody has made and not committed can be waited for only.
    for v_try in 1 .. 2 loop
        for v_place in 1 .. coalesce(cardinality(v_free), 0) loop
            continue when v_free[v_place];
            if p_skip_locked then
                perform
                from zone_bucket_lock b
                where b.zone_id = v_zone_ids[v_place] and b.bucket_key = v_keys[v_place]
                for no key update skip locked;
                v_free[v_place] := found;
            else
                perform zone_bucket_take(v_zone_ids[v_place], v_keys[v_place], null);
                v_free[v_place] := true;
            end if;
        end loop;
        exit when v_try = 2 or (false = any(v_free)) is not true;
        perform set_config('lock_timeout', '20', true);
        begin
            for v_place in 1 .. cardinality(v_free) loop
                continue when v_free[v_place];
                perform
                from zone_bucket_lock b
                where b.zone_id = v_zone_ids[v_place] and b.bucket_key = v_keys[v_place];
                if not found then
                    perform zone_bucket_open(v_zone_ids[v_place], v_keys[v_place]);
                end if;
            end loop;
        exception
            when lock_not_available then
                null; -- Then none is made, and those that are missing are left out.
        end;
        perform set_config('lock_timeout', v_lock_timeout, true);
    end loop;
    if p_own and not exists (
        select
        from zone_master z
        where z.id = any(p_zone_ids) and z.durability <> 'relaxed'
    ) then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    for v_position in 1 .. c_count loop
        if v_recorded[v_position] and not v_free[v_places[v_position]] then
            v_decision := null;
            v_decision.txn_id := p_txn_ids[v_position];
            v_decision.zone_id := p_zone_ids[v_position];
            v_decision.bucket_key := p_bucket_keys[v_position];
            v_decision.cost := p_costs[v_position];
        else
            v_decision := zone_check(
                p_zone_ids[v_position], p_bucket_keys[v_position], p_txn_ids[v_position], p_costs[v_position],
                p_record[v_position], p_critical => coalesce(p_critical[v_position], false),
                p_member => p_members[v_position], p_ttl_us => p_ttls_us[v_position]
            );
        end if;
        return next v_decision;
    end loop;
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
