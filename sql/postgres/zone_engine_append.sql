-- zone_engine_append: rows that a process has decided by itself go into the ledger, where their buckets are still where
-- they were derived from.
--
-- Compare and swap: a head moves from the seq and the hash that the process knew, by the version of the zone in force,
-- or stays where it is. The database looks at what it can see at little cost: that rows follow each other and their
-- head, totals, times, kinds and reasons. The rest is derived again by tallygate audit verify.
--
-- Arguments  p_heads        the buckets, in the byte order of (zone_id, bucket_key)
--            p_rows         the rows, those of a bucket in their order: checks, and bans that these brought about; leases; what
--                           is taken for local decisions; ends of charges
--            p_parts        what of their charges ends by itself
--            p_together     all buckets move, or none
--            p_skip_locked  leave out the buckets that another transaction holds instead of waiting for them
--            p_lock_wait_ms as in zone_check
--            p_own          as in zone_engine_append_one
-- Result     fates: of each bucket: 0, its rows are in the ledger; 1, it has moved on, knows one of the named transactions, or is
--            left out. now: the database's clock when the call began
-- Locks      the buckets' rows, until the transaction ends
-- Errors     TG003 what does not follow, or a key that cannot be stored; TG009 nothing was appended: a zone has another
--            version, or the time is not now, but see p_own; TG010 with p_together: a bucket has moved on;
--            TG011 the key of a new bucket belongs to another database; 55P03 the lock was not had in time
create function zone_engine_append(
    p_heads        zone_engine_head[],
    p_rows         zone_engine_row[],
    p_parts        zone_engine_part[],
    p_together     boolean,
    p_skip_locked  boolean,
    p_lock_wait_ms int,
    p_own          boolean,
    out now        timestamptz,
    out fates      int[]
)
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_engine_hold.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    v_head     zone_engine_head;
    v_part     zone_engine_part;
    v_row      zone_engine_row;
    v_before   zone_engine_row; -- of the first row of a bucket: the head that it follows
    v_place    int := 0;
    v_next     int := 1;
    v_new      int := 0;
    v_made     int;
    v_held     zone_bucket_lock;
    v_spent    bigint;
    v_leases   boolean := false;
    v_ends     boolean := false;
    v_opened   boolean := false;
    v_alone    boolean;
    v_current  boolean;
    v_durable  boolean;
    v_timeout  constant text := current_setting('lock_timeout');
    c_after    constant timestamptz := timestamptz '-infinity'; -- programs read times between these
    c_before   constant timestamptz := timestamptz '262143-01-01 00:00:00+00';
begin
    now := pg_catalog.clock_timestamp();
    fates := array_fill(0, array[cardinality(p_heads)]);

    -- 1. Do the rows follow each other, and do the heads follow them? By loops: a statement over the rows takes longer to
    --    begin than a few rows take to be looked at.
    foreach v_head in array p_heads loop
        -- Each once, in order.
        if v_place > 0
            and (
                (v_head.zone_id, v_head.bucket_key collate "C")
                    > (p_heads[v_place].zone_id, p_heads[v_place].bucket_key)
            ) is not true
        then
            perform zone_error('heads', cardinality(p_heads)::text);
        end if;
        v_place := v_place + 1;
        -- The time is the database's, of a moment ago; or that of the bucket, where the clock is behind that.
        if (
            -- Of a bucket that a caller's transaction holds, it may be older.
            v_head.last_at between now - case when p_own then interval '1 second' else interval '10 seconds' end and now
            or (v_head.last_at = v_head.was_at and v_head.was_at > now)
        ) is not true then
            -- Or that of a queue's items, where the clock was set back behind what they have become by themselves.
            perform zone_error('stale')
            where not exists (
                select
                from zone_queue q
                where q.zone_id = v_head.zone_id and q.bucket_key = v_head.bucket_key and q.settled_at = v_head.last_at
            );
        end if;
        v_before := null;
        v_before.seq := v_head.was_seq;
        v_before.spent_total := v_head.was_total;
        v_before.created_at := v_head.was_at;
        v_before.strikes := 0;
        while p_rows[v_next].head = v_place loop
            v_row := p_rows[v_next];
            if (
                v_row.kind in (
                    'check', 'reserve', 'coalesced', 'ban', 'lease', 'local', 'refund', 'settle', 'cancel', 'release', 'offer',
                    'take', 'extend', 'done', 'requeue', 'evict'
                )
                and (
                    v_row.reason in ('over_limit', 'exceeds_limit', 'banned', 'held_back')
                    or (not v_row.blocked and v_row.reason in ('within_limit', 'soft', 'off', 'recorded'))
                )
                and (v_row.reason = 'recorded') = (
                    v_row.kind in ('ban', 'refund', 'settle', 'cancel', 'release', 'extend', 'done', 'requeue', 'evict')
                )
                and (v_row.kind <> 'ban' or (v_row.txn_id = v_before.txn_id and v_before.kind <> 'ban'))
                and (v_row.checks = 1 or v_row.kind in ('coalesced', 'lease', 'take', 'extend', 'done', 'requeue'))
                and (v_row.band is null) = (v_row.kind not in ('lease', 'offer', 'take', 'extend', 'done', 'requeue', 'evict'))
                and coalesce(v_row.band between 0 and 255, true)
                and v_row.cost between 0 and 1099511627776
                and v_row.spent between 0 and v_row.cost
                -- Numbers that programs count.
                and v_row.zone_limit between 0 and 1099511627776
                and least(v_row.remaining, v_row.retry_after_us, v_row.delay_us) >= 0
                and coalesce(v_row.level > -9223372036854775808, true)
                and octet_length(v_row.row_hash) = 32
                and (v_row.salt is null or v_row.seq = 1)
                and v_row.txn_id <> '00000000-0000-0000-0000-000000000000'
                and v_row.zone_id = v_head.zone_id
                and v_row.bucket_key = v_head.bucket_key
                and v_row.zone_version = v_head.zone_version
                and v_row.created_at = v_head.last_at
                and v_row.seq = v_before.seq + 1
                and (v_head.was_seq = 0 or not v_head.is_new)
                and v_row.spent_total = v_before.spent_total + v_row.spent
                and v_row.strikes >= v_before.strikes
                and (v_row.seq = 1) = (v_row.prev_at is null)
                and v_row.prev_at is not distinct from v_before.created_at
                and coalesce(v_row.created_at >= v_row.prev_at, true)
                and coalesce(least(v_row.target_at, v_row.ends_at) > c_after, true)
                and coalesce(greatest(v_row.target_at, v_row.ends_at) < c_before, true)
            ) is not true then
                perform zone_error('append', v_row.zone_id::text, v_row.seq::text);
            end if;
            v_leases := v_leases or v_row.kind = 'lease';
            v_ends := v_ends or v_row.kind in ('refund', 'settle', 'cancel', 'release');
            -- A process that did not look whether a transaction was decided before learns it here; of rows that are added from now on
            -- the head tells.
            if v_row.named and v_row.seq > 1 then
                perform -- as in zone_engine_hold
                from zone_txn t
                where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
                        = hashtextextended(v_row.bucket_key, uuid_hash_extended(v_row.txn_id, v_row.zone_id))
                    and t.bucket_key = v_row.bucket_key and t.txn_id is not distinct from v_row.txn_id and t.zone_id is not distinct from v_row.zone_id
                    and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'lease', 'local', 'offer')
                limit 1;
                if found then
                    fates[v_place] := 1;
                end if;
            end if;
            v_before := v_row;
            v_next := v_next + 1;
        end loop;
        if v_before.kind is null then
            perform zone_error('heads', cardinality(p_heads)::text);
        end if;
        if (
            v_before.seq = v_head.seq and v_before.spent_total = v_head.spent_total
            and v_before.level is not distinct from v_head.level and v_before.strikes = v_head.strikes
            and v_before.row_hash = v_head.row_hash
            -- It was carried, banned and excepted by then.
            and v_head.ban_strikes between 0 and v_head.strikes
            and num_nulls(v_head.carried, v_head.carried_at, v_head.carried_total, v_head.carried_seq) in (0, 4)
            and coalesce(v_head.carried between 0 and 4398046511104, true)
            and coalesce(v_head.carried_total between 0 and v_head.spent_total, true)
            and coalesce(v_head.carried_seq between 0 and v_head.seq, true)
            and coalesce(v_head.override_seq between 1 and v_head.seq, true)
            and v_head.bans >= 0
            and coalesce(least(v_head.banned_until, v_head.carried_at) > c_after, true)
            and coalesce(greatest(v_head.banned_until, v_head.carried_at) < c_before, true)
        ) is not true then
            perform zone_error('append', v_head.zone_id::text, v_head.seq::text);
        end if;
        if v_head.is_new then
            v_new := v_new + 1;
        end if;
    end loop;
    if v_next <= cardinality(p_rows) then
        perform zone_error('heads', cardinality(p_heads)::text);
    end if;
    foreach v_part in array p_parts loop
        v_head := p_heads[v_part.head];
        if v_ends then
            select t.spent
            into v_spent
            from zone_txn t
            where t.zone_id = v_head.zone_id and t.bucket_key = v_head.bucket_key and t.created_at = v_part.charged_at
                and t.seq = v_part.seq;
        end if;
        perform zone_error('append', v_part.zone_id::text, v_part.seq::text)
        where (
            v_part.zone_id = v_head.zone_id and v_part.bucket_key = v_head.bucket_key
            and least(v_part.charged_at, v_part.ends_at) > c_after and v_part.ends_at < c_before
            and (
                (v_part.seq > v_head.was_seq and v_part.seq <= v_head.seq and v_part.charged_at = v_head.last_at)
                -- The amount that is given back is of an earlier row.
                or (v_ends and v_part.seq <= v_head.was_seq and v_part.ends_at = v_head.last_at and v_part.amount <= v_spent)
            )
        ) is not true;
    end loop;
    -- No more ends than was charged.
    perform zone_error('append', p_heads[p.head].zone_id::text, p_heads[p.head].seq::text)
    from unnest(p_parts) as p
    where p.seq > p_heads[p.head].was_seq
    group by p.head
    having sum(p.amount) > p_heads[p.head].spent_total - p_heads[p.head].was_total
    limit 1;

    -- 2. Hold the buckets that are where they were. One that is there by its name: of that Citus has a plan, too.
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    v_alone := v_place = 1 and v_new = 0 and not p_skip_locked;
    if v_alone then
        v_held := zone_bucket_take(v_head.zone_id, v_head.bucket_key, null);
        if (
            v_held.seq = v_head.was_seq and v_held.row_hash = v_head.was_hash and v_held.spent_total = v_head.was_total
            and v_held.last_at is not distinct from v_head.was_at
        ) is not true then
            fates := array[1];
        end if;
    else
        loop
            if p_skip_locked then
                select array_agg(case when fates[h.ordinality] = 0 and (h.is_new or b.held) then 0 else 1 end order by h.ordinality)
                into fates
                from unnest(p_heads) with ordinality as h
                left join lateral (
                    select true as held
                    from zone_bucket_lock b
                    where not h.is_new and b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
                        and b.seq = h.was_seq and b.row_hash = h.was_hash and b.spent_total = h.was_total
                        and b.last_at is not distinct from h.was_at
                    for no key update skip locked
                ) b on true;
            else
                select array_agg(case when fates[h.ordinality] = 0 and (h.is_new or b.held) then 0 else 1 end order by h.ordinality)
                into fates
                from unnest(p_heads) with ordinality as h
                left join lateral (
                    select true as held
                    from zone_bucket_lock b
                    where not h.is_new and b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
                        and b.seq = h.was_seq and b.row_hash = h.was_hash and b.spent_total = h.was_total
                        and b.last_at is not distinct from h.was_at
                    for no key update
                ) b on true;
            end if;
            exit when 1 <> all(fates) or v_opened;
            -- Some may have a ledger and no row.
            exit when not exists (
                select
                from zone_bucket_removed r
                where r.zone_id = any(array(select h.zone_id from unnest(p_heads) h where h.was_seq > 0))
            );
            perform zone_bucket_open(h.zone_id, h.bucket_key)
            from unnest(p_heads) h
            where h.was_seq > 0
                and not exists (
                    select
                    from zone_bucket_lock b
                    where b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
                    offset 0
                );
            v_opened := true;
        end loop;
    end if;
    -- A new bucket has no row to be held by. Another transaction that makes it too is not waited for: whoever holds some
    -- rows and makes others may wait for somebody who does so the other way round.
    if v_new > 0 then
        if exists (select from tallygate_shard) then
            -- Fails for one that another database is to begin.
            perform zone_head_new(h.zone_id, h.bucket_key)
            from unnest(p_heads) h
            where h.is_new
                and not exists (
                    select
                    from zone_bucket_lock b
                    where b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
                    offset 0
                );
        end if;
        begin
            perform set_config('lock_timeout', '20', true);
            insert into zone_bucket_lock (
                zone_id, bucket_key, seq, last_at, spent_total, level, strikes, banned_until, ban_strikes, carried,
                carried_at, carried_total, carried_seq, override_seq, zone_version, bans, holding, salt, row_hash
            )
            select h.zone_id, h.bucket_key::zone_bucket_key, h.seq, h.last_at, h.spent_total, h.level, h.strikes, h.banned_until,
                h.ban_strikes, h.carried, h.carried_at, h.carried_total, h.carried_seq, h.override_seq, h.zone_version,
                h.bans, h.holding, h.salt, h.row_hash
            from unnest(p_heads) as h
            where h.is_new
            on conflict (zone_id, bucket_key) do nothing;
            get diagnostics v_made = row_count;
        exception
            when lock_not_available then
                v_made := 0;
            when check_violation or not_null_violation then
                -- One by one, to say which it is.
                perform zone_bucket_open(h.zone_id, h.bucket_key, true) from unnest(p_heads) h;
                raise;
        end;
        perform set_config('lock_timeout', coalesce(p_lock_wait_ms::text, v_timeout), true);
        if v_made < v_new then
            -- Those that stand there now with another end of their chain are somebody else's.
            select array_agg(case when h.is_new and b.there is null then 1 else fates[h.ordinality] end order by h.ordinality)
            into fates
            from unnest(p_heads) with ordinality as h
            left join lateral (
                select true as there
                from zone_bucket_lock b
                where h.is_new and b.zone_id = h.zone_id and b.bucket_key = h.bucket_key and b.row_hash = h.row_hash
                offset 0
            ) b on true;
        end if;
    end if;
    if p_together and 0 <> any(fates) then
        perform zone_error('moved');
    end if;

    -- 3. Policies, by a statement that began after the locks.
    select bool_and(
            coalesce(z.version = h.zone_version, false)
            or (not p_own and zone_engine_held_by(h.zone_id, h.zone_version, h.last_at))
        ),
        bool_or(z.durability <> 'relaxed')
    into v_current, v_durable
    from (
        select h.zone_id, h.zone_version, max(h.last_at) as last_at
        from unnest(p_heads) as h
        group by h.zone_id, h.zone_version
    ) h
    left join lateral (
        select z.version, z.durability
        from zone_master z
        where z.id = h.zone_id
        offset 0
    ) z on true;
    if not v_current then
        perform zone_error('stale');
    end if;
    if p_own and not v_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- 4. Write.
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, band, cost, spent, spent_total,
        remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at, ends_at, member, salt,
        row_hash
    )
    select r.txn_id, r.zone_id, r.zone_version, r.bucket_key, r.seq, r.kind, r.checks, r.blocked, r.reason, r.critical, r.band, r.cost,
        r.spent, r.spent_total, r.remaining, r.zone_limit, r.retry_after_us, r.delay_us, r.level, r.strikes, r.target_at, r.created_at,
        r.prev_at, r.ends_at, r.member, r.salt, r.row_hash
    from unnest(p_rows) as r
    where fates[r.head] = 0;
    if v_alone then
        update zone_bucket_lock b
        set seq = v_head.seq,
            last_at = v_head.last_at,
            spent_total = v_head.spent_total,
            level = v_head.level,
            strikes = v_head.strikes,
            banned_until = v_head.banned_until,
            ban_strikes = v_head.ban_strikes,
            carried = v_head.carried,
            carried_at = v_head.carried_at,
            carried_total = v_head.carried_total,
            carried_seq = v_head.carried_seq,
            override_seq = v_head.override_seq,
            zone_version = v_head.zone_version,
            bans = v_head.bans,
            holding = v_head.holding,
            shapes = coalesce(v_head.shapes, b.shapes),
            row_hash = v_head.row_hash
        where fates[1] = 0 and b.zone_id = v_head.zone_id and b.bucket_key = v_head.bucket_key;
    else
        update zone_bucket_lock b
        set seq = h.seq,
            last_at = h.last_at,
            spent_total = h.spent_total,
            level = h.level,
            strikes = h.strikes,
            banned_until = h.banned_until,
            ban_strikes = h.ban_strikes,
            carried = h.carried,
            carried_at = h.carried_at,
            carried_total = h.carried_total,
            carried_seq = h.carried_seq,
            override_seq = h.override_seq,
            zone_version = h.zone_version,
            bans = h.bans,
            holding = h.holding,
            shapes = coalesce(h.shapes, b.shapes),
            row_hash = h.row_hash
        from unnest(p_heads) with ordinality as h
        where not h.is_new and fates[h.ordinality] = 0 and b.zone_id = h.zone_id and b.bucket_key = h.bucket_key;
    end if;
    if v_leases then
        -- A lease takes the place of the one that its client had.
        foreach v_row in array p_rows loop
            continue when v_row.kind <> 'lease' or fates[v_row.head] > 0;
            delete from zone_hold d
            where d.zone_id = v_row.zone_id and d.bucket_key = v_row.bucket_key and d.member = v_row.member
                and d.seq < v_row.seq;
        end loop;
    end if;
    if cardinality(p_parts) > 0 then
        v_place := 0;
        foreach v_head in array p_heads loop
            v_place := v_place + 1;
            continue when not v_head.ended or fates[v_place] > 0;
            delete from zone_hold d
            where d.zone_id = v_head.zone_id and d.bucket_key = v_head.bucket_key and d.ends_at <= v_head.last_at;
        end loop;
        insert into zone_hold as d (zone_id, bucket_key, seq, charged_at, amount, ends_at, member)
        select p.zone_id, p.bucket_key, p.seq, p.charged_at, p.amount, p.ends_at, p.member
        from unnest(p_parts) as p
        where fates[p.head] = 0
        on conflict (zone_id, bucket_key, seq) do update
        set charged_at = excluded.charged_at,
            amount = excluded.amount,
            ends_at = excluded.ends_at,
            member = excluded.member;
    end if;
end
$$;
