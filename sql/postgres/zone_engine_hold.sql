-- zone_engine_hold: what there is of some buckets, for a process that decides by itself.
--
-- Arguments  p_zone_ids     the zones
--            p_bucket_keys  the buckets, each pair once, in the byte order of (zone_id, bucket_key)
--            p_window_us    the longest window that is asked about besides those of the zones and of overrides
--            p_held         of each: hold its row until the transaction ends, and make one that is not there
--            p_lock_wait_ms as in zone_check
--            p_txn_zone_ids, p_txn_bucket_keys, p_txn_ids  transactions that may be in the ledger
-- Result     a row for each bucket, in that order: its head, null where there is none; its override in force; what of its
--            charges ends by itself, as arrays, null where nothing does; the version of its zone in force, null where there
--            is no zone; and where a sliding log in force has charges in its window, what had been spent in all
--            (total) before a time (total_at). In the first row: which of the transactions are in the ledger
-- Locks      nothing; with p_held the buckets' rows, see zone_bucket_hold
-- Errors     with p_held TG001 there is no such zone, and those of zone_bucket_hold; 55P03 the lock was not had in time
create function zone_engine_hold(
    p_zone_ids        int[],
    p_bucket_keys     text[],
    p_window_us       bigint,
    p_held            boolean[],
    p_lock_wait_ms    int,
    p_txn_zone_ids    int[],
    p_txn_bucket_keys text[],
    p_txn_ids         uuid[]
)
returns table (
    now            timestamptz,
    version        int,
    seq            bigint,
    last_at        timestamptz,
    spent_total    bigint,
    level          bigint,
    strikes        bigint,
    zone_version   int,
    more           boolean,     -- any of those from here to override_seq says something
    banned_until   timestamptz,
    bans           int,
    ban_strikes    bigint,
    carried        bigint,
    carried_at     timestamptz,
    carried_total  bigint,
    carried_seq    bigint,
    holding        boolean,
    override_seq   bigint,
    rate           bigint,
    window_us      bigint,
    burst          bigint,
    rate_gcd       bigint,
    ban_exempt     boolean,
    ends_at        timestamptz,
    hold_seqs      bigint[],
    hold_charged   timestamptz[],
    hold_amounts   bigint[],
    hold_ends      timestamptz[],
    hold_members   text[],
    total_at       timestamptz,
    total          bigint,
    salt           bytea,
    row_hash       bytea,
    past           int[]
)
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
    v_heads     zone_bucket_lock[];
    v_key       text;
    v_txn_id    uuid;
    v_head      zone_bucket_lock;
    v_override  zone_override;
    v_past      int[];
    v_now       timestamptz;
    v_zone_id   int;
    v_algorithm text;
    v_zone_us   bigint;
    v_from      timestamptz;
begin
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    if cardinality(p_zone_ids) = 1 and p_held[1] then
        v_heads := array[zone_bucket_take(p_zone_ids[1], p_bucket_keys[1], null)];
    else
        v_heads := zone_bucket_hold(p_zone_ids, p_bucket_keys, p_held);
    end if;
    -- The clock, after the locks.
    v_now := pg_catalog.clock_timestamp();
    for v_place in 1 .. cardinality(p_txn_ids) loop
        v_zone_id := p_txn_zone_ids[v_place];
        v_key := p_txn_bucket_keys[v_place];
        v_txn_id := p_txn_ids[v_place];
        perform -- as zone_txn_bucket_txn says
        from zone_txn t
        where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
                = hashtextextended(v_key, uuid_hash_extended(v_txn_id, v_zone_id))
            and t.bucket_key = v_key and t.txn_id is not distinct from v_txn_id and t.zone_id is not distinct from v_zone_id
        limit 1;
        if found then
            v_past := v_past || v_place;
        end if;
    end loop;

    -- By a loop: a statement over arrays takes longer to begin than a few buckets take.
    now := v_now;
    past := v_past;
    v_zone_id := null;
    for v_place in 1 .. cardinality(p_zone_ids) loop
        v_head := v_heads[v_place];
        v_key := p_bucket_keys[v_place];
        if v_zone_id is distinct from p_zone_ids[v_place] then
            v_zone_id := p_zone_ids[v_place];
            select z.version, z.algorithm, z.window_us
            into version, v_algorithm, v_zone_us
            from zone_master z
            where z.id = v_zone_id;
            if version is null and true = any(p_held) then
                perform zone_error('no zone', v_zone_id::text);
            end if;
        end if;
        seq := v_head.seq;
        last_at := v_head.last_at;
        spent_total := v_head.spent_total;
        level := v_head.level;
        strikes := v_head.strikes;
        zone_version := v_head.zone_version;
        banned_until := v_head.banned_until;
        bans := v_head.bans;
        ban_strikes := v_head.ban_strikes;
        carried := v_head.carried;
        carried_at := v_head.carried_at;
        carried_total := v_head.carried_total;
        carried_seq := v_head.carried_seq;
        holding := v_head.holding;
        override_seq := v_head.override_seq;
        more := coalesce(banned_until, carried_at) is not null or override_seq is not null or bans + ban_strikes > 0
            or holding;
        salt := v_head.salt;
        row_hash := v_head.row_hash;

        v_override := null;
        if override_seq is not null then
            select o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
            into v_override.rate, v_override.window_us, v_override.burst, v_override.rate_gcd, v_override.ban_exempt,
                v_override.ends_at
            from zone_override o
            where o.zone_id = v_zone_id and o.bucket_key = v_key and o.seq = v_head.override_seq;
        end if;
        rate := v_override.rate;
        window_us := v_override.window_us;
        burst := v_override.burst;
        rate_gcd := v_override.rate_gcd;
        ban_exempt := v_override.ban_exempt;
        ends_at := v_override.ends_at;

        total := null;
        if v_algorithm = 'sliding-log' then
            total_at := greatest(v_now, last_at) - (v_zone_us - 1) * interval '1 microsecond';
            if last_at >= total_at then
                select t.spent_total - t.spent
                into total
                from zone_txn t
                where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at >= total_at
                order by t.created_at, t.seq
                limit 1;
            end if;
        end if;

        hold_seqs := null;
        if holding then
            -- The holds that end after the last row, and those that were charged in a window that can be asked about: that
            -- which was open at the last row, and, of a sliding counter, the slot before that, which is no longer.
            v_from := last_at - interval '2 microseconds' * greatest(
                p_window_us, window_us,
                (
                    select max(v.window_us)
                    from zone_version v
                    where v.zone_id = v_zone_id and v.version >= v_head.zone_version
                )
            );
            select array_agg(h.seq), array_agg(h.charged_at), array_agg(h.amount), array_agg(h.ends_at), array_agg(h.member)
            into hold_seqs, hold_charged, hold_amounts, hold_ends, hold_members
            from zone_hold h
            where h.zone_id = v_zone_id and h.bucket_key = v_key
                and (h.ends_at > v_head.last_at or h.charged_at > v_from);
        end if;
        return next;
        past := null;
    end loop;
end
$$;
