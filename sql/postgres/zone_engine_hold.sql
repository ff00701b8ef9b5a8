-- zone_engine_hold: what there is of some buckets, for a process that decides by itself.
--
-- Arguments  p_zone_ids     the zones
--            p_bucket_keys  the buckets, each pair once, in the byte order of (zone_id, bucket_key)
--            p_window_us    the longest window that is asked about besides those of the zones and of overrides
--            p_lock         hold the buckets' rows until the transaction ends, and make those that are not there
--            p_lock_wait_ms as in zone_check
--            p_txn_zone_ids, p_txn_bucket_keys, p_txn_ids  transactions that may be in the ledger
-- Result     a row for each bucket, in that order: its head, null where there is none; its override in force; what of its
--            charges ends by itself, as arrays, null where nothing does; the version of its zone in force, null where there
--            is no zone; and where a sliding log in force has charges in its window, what had been spent in all
--            (total) before a time (total_at). In the first row: which of the transactions are in the ledger
-- Locks      nothing; with p_lock the buckets' rows, see zone_bucket_hold
-- Errors     with p_lock TG001 there is no such zone, and those of zone_bucket_hold; 55P03 the lock was not had in time
create function zone_engine_hold(
    p_zone_ids        int[],
    p_bucket_keys     text[],
    p_window_us       bigint,
    p_lock            boolean,
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
#variable_conflict use_column
declare
    v_one   boolean := cardinality(p_zone_ids) = 1 and not p_lock;
    v_head  zone_bucket_lock;
    v_heads zone_bucket_lock[];
    v_past  int[];
    v_now   timestamptz;
begin
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    if v_one then
        v_heads := array(
            select b from zone_bucket_lock b where b.zone_id = p_zone_ids[1] and b.bucket_key = p_bucket_keys[1]
        );
        v_head := v_heads[1];
        v_one := case
            when cardinality(v_heads) = 1 then v_head.moved_to is null
            else not exists (select from zone_bucket_removed r where r.zone_id = p_zone_ids[1])
                and not exists (select from tallygate_shard)
        end;
    end if;
    if not v_one then
        v_heads := zone_bucket_hold(
            p_zone_ids, p_bucket_keys, array_fill(p_lock, array[cardinality(p_zone_ids)]), false
        );
    end if;
    if p_lock then
        perform zone_error('no zone', k.zone_id::text)
        from unnest(p_zone_ids) as k (zone_id)
        where not exists (select from zone_master z where z.id = k.zone_id offset 0);
    end if;
    -- The clock, after the locks.
    v_now := pg_catalog.clock_timestamp();
    if cardinality(p_txn_ids) > 0 then
        select array_agg(c.position::int order by c.position)
        into v_past
        from unnest(p_txn_zone_ids, p_txn_bucket_keys, p_txn_ids) with ordinality
            as c (zone_id, bucket_key, txn_id, position)
        -- From there to there: in this order there is one index only to read it by. Asked for the row itself, a plan that was
        -- made while the ledger was small may go by zone or by bucket alone.
        cross join lateral (
            select
            from zone_txn t
            where (t.zone_id, t.bucket_key, t.txn_id) >= (c.zone_id, c.bucket_key, c.txn_id)
                and (t.zone_id, t.bucket_key, t.txn_id) <= (c.zone_id, c.bucket_key, c.txn_id)
            order by t.zone_id, t.bucket_key, t.txn_id
            limit 1
        ) t;
    end if;
    -- One bucket of which its row says all, as most checks find theirs: half of the time of the statement over arrays.
    if v_one and coalesce(v_head.banned_until, v_head.carried_at) is null and v_head.override_seq is null
        and coalesce(v_head.bans + v_head.ban_strikes, 0) = 0 and v_head.holding is not true
    then
        return query
        select v_now, z.version, v_head.seq::bigint, v_head.last_at, v_head.spent_total::bigint, v_head.level, v_head.strikes,
            v_head.zone_version, false, null::timestamptz, null::int, null::bigint, null::bigint, null::timestamptz, null::bigint,
            null::bigint, false, null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::boolean,
            null::timestamptz, null::bigint[], null::timestamptz[], null::bigint[], null::timestamptz[], null::text[],
            case when w.total is not null then z.total_at end, w.total, v_head.salt, v_head.row_hash, v_past
        from (select greatest(v_now, v_head.last_at) as at) c
        left join lateral (
            select z.version, z.algorithm, c.at - (z.window_us - 1) * interval '1 microsecond' as total_at
            from zone_master z
            where z.id = p_zone_ids[1]
            offset 0
        ) z on true
        left join lateral (
            select t.spent_total - t.spent as total
            from zone_txn t
            where z.algorithm = 'sliding-log' and v_head.last_at >= z.total_at
                and t.zone_id = p_zone_ids[1] and t.bucket_key = p_bucket_keys[1] and t.created_at >= z.total_at
            order by t.created_at, t.seq
            limit 1
        ) w on true;
        return;
    end if;
    return query
    select v_now, z.version, k.seq, k.last_at, k.spent_total, k.level, k.strikes,
        k.zone_version,
        coalesce(k.banned_until, k.carried_at) is not null or k.override_seq is not null
            or k.bans + k.ban_strikes > 0 or k.holding,
        k.banned_until, k.bans, k.ban_strikes, k.carried, k.carried_at, k.carried_total, k.carried_seq, k.holding,
        k.override_seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at,
        h.seqs, h.charged, h.amounts, h.ends, h.members,
        case when w.total is not null then z.total_at end, w.total,
        k.salt, k.row_hash, case when k.position = 1 then v_past end
    from (
        -- Domains are not what the result says.
        select k.zone, k.key, k.seq::bigint as seq, k.last_at, k.spent_total::bigint as spent_total, k.level, k.strikes,
            k.banned_until, k.ban_strikes, k.carried, k.carried_at, k.carried_total, k.carried_seq, k.override_seq,
            k.zone_version, k.bans, k.holding, k.salt, k.row_hash, k.position
        from unnest(p_zone_ids, p_bucket_keys, v_heads) with ordinality as k (
            zone, key, seq, last_at, spent_total, level, strikes, banned_until, ban_strikes, carried, carried_at,
            carried_total, carried_seq, override_seq, head_zone_id, zone_version, bans, holding, head_key, salt,
            row_hash, moved_to, moved_by, shapes, position
        )
    ) k
    left join lateral (
        select z.version, z.algorithm,
            greatest(v_now, k.last_at) - (z.window_us - 1) * interval '1 microsecond' as total_at
        from zone_master z
        where z.id = k.zone
        offset 0 -- keeps the subquery whole: as a join it could be read in full
    ) z on true
    left join lateral (
        select o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
        from zone_override o
        where k.override_seq is not null
            and o.zone_id = k.zone and o.bucket_key = k.key and o.seq = k.override_seq
        offset 0
    ) o on true
    left join lateral (
        select t.spent_total - t.spent as total
        from zone_txn t
        where z.algorithm = 'sliding-log' and k.last_at >= z.total_at
            and t.zone_id = k.zone and t.bucket_key = k.key and t.created_at >= z.total_at
        order by t.created_at, t.seq
        limit 1
    ) w on true
    left join lateral (
        -- The holds that end after the last row, and those that were charged in a window that can be asked about: that
        -- which was open at the last row, and, of a sliding counter, the slot before that, which is no longer.
        select array_agg(h.seq) as seqs, array_agg(h.charged_at) as charged, array_agg(h.amount) as amounts,
            array_agg(h.ends_at) as ends, array_agg(h.member) as members
        from zone_hold h
        where k.holding and h.zone_id = k.zone and h.bucket_key = k.key
            and (
                h.ends_at > k.last_at
                or h.charged_at > k.last_at - interval '2 microseconds' * greatest(
                    p_window_us, o.window_us,
                    (
                        select max(v.window_us)
                        from zone_version v
                        where v.zone_id = k.zone and v.version >= k.zone_version
                    )
                )
            )
        offset 0
    ) h on k.holding
    order by k.position;
end
$$;
