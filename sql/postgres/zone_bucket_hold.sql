-- zone_bucket_hold: locks buckets and reads their heads; those that have no row get one. Not called from outside.
--
-- Arguments  p_zone_ids     the zones
--            p_bucket_keys  the buckets, each pair once, in the byte order of (zone_id, bucket_key)
--            p_held         false for a bucket that is only looked at: it is neither made nor locked
--            p_skip_locked  leave out the buckets that another transaction holds instead of waiting for them
-- Result     their rows in the same order; null for one that was left out, or looked at and not there
-- Locks      the buckets' rows in that order, and but under READ COMMITTED the zones of new ones against their removal,
--            until the transaction ends; with p_skip_locked it waits for no row but 20 ms for new ones that another
--            transaction makes too
-- Errors     TG003 a key cannot be stored; TG011 a bucket was moved, or its key belongs, to another database
create function zone_bucket_hold(p_zone_ids int[], p_bucket_keys text[], p_held boolean[], p_skip_locked boolean)
returns zone_bucket_lock[]
language plpgsql
as $$
declare
    v_heads        zone_bucket_lock[];
    v_bucket       record;
    v_head         zone_bucket_lock;
    v_lock_timeout constant text := current_setting('lock_timeout');
begin
    loop
        if exists (
            select
            from unnest(p_zone_ids, p_bucket_keys, p_held) as k (zone_id, bucket_key, held)
            where k.held
                and not exists (
                    select
                    from zone_bucket_lock b
                    where b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
                    offset 0 -- keeps the subquery whole: as a join it could be read by zone alone
                )
        ) then
            begin
                if current_setting('transaction_isolation') <> 'read committed' then
                    -- Where an old snapshot still shows a zone that was removed since, this lock fails.
                    perform from zone_master z where z.id = any(p_zone_ids) order by z.id for key share;
                end if;
                if exists (select from zone_bucket_removed r where r.zone_id = any(p_zone_ids))
                    or exists (select from tallygate_shard)
                then
                    -- One by one in the same order, since each may be in the ledger, or belong to another database.
                    if p_skip_locked then
                        perform set_config('lock_timeout', '20', true);
                    end if;
                    for v_bucket in
                        select k.zone_id, k.bucket_key
                        from unnest(p_zone_ids, p_bucket_keys, p_held) with ordinality
                            as k (zone_id, bucket_key, held, position)
                        where k.held
                        order by k.position
                    loop
                        if p_skip_locked then
                            perform
                            from zone_bucket_lock b
                            where b.zone_id = v_bucket.zone_id and b.bucket_key = v_bucket.bucket_key;
                        else
                            perform
                            from zone_bucket_lock b
                            where b.zone_id = v_bucket.zone_id and b.bucket_key = v_bucket.bucket_key
                            for no key update;
                        end if;
                        if not found then
                            perform zone_bucket_open(v_bucket.zone_id, v_bucket.bucket_key);
                        end if;
                    end loop;
                    perform set_config('lock_timeout', v_lock_timeout, true);
                elsif p_skip_locked then
                    -- A row that somebody has made and not committed can be waited for only.
                    perform set_config('lock_timeout', '20', true);
                    insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash)
                    select k.zone_id, k.bucket_key::zone_bucket_key, k.salt, zone_bucket_hash(k.salt, k.zone_id, k.bucket_key)
                    from (
                        select k.zone_id, k.bucket_key, k.held, k.position, uuid_send(gen_random_uuid()) as salt
                        from unnest(p_zone_ids, p_bucket_keys, p_held) with ordinality
                            as k (zone_id, bucket_key, held, position)
                    ) k
                    where k.held
                    order by k.position
                    on conflict (zone_id, bucket_key) do nothing;
                    perform set_config('lock_timeout', v_lock_timeout, true);
                else
                    -- Makes or locks each in its turn. To lock some, make others and lock the rest would be out of
                    -- order, and two such calls could wait for each other.
                    insert into zone_bucket_lock as b (zone_id, bucket_key, salt, row_hash)
                    select k.zone_id, k.bucket_key::zone_bucket_key, k.salt, zone_bucket_hash(k.salt, k.zone_id, k.bucket_key)
                    from (
                        select k.zone_id, k.bucket_key, k.held, k.position, uuid_send(gen_random_uuid()) as salt
                        from unnest(p_zone_ids, p_bucket_keys, p_held) with ordinality
                            as k (zone_id, bucket_key, held, position)
                    ) k
                    where k.held
                    order by k.position
                    on conflict (zone_id, bucket_key) do update
                    set seq = b.seq
                    where false;
                end if;
            exception
                when lock_not_available then
                    -- Then none is made, and those that are missing are left out.
                    if not p_skip_locked then
                        raise;
                    end if;
                when check_violation or not_null_violation then
                    -- One by one, to say which it is.
                    perform zone_bucket_open(k.zone_id, k.bucket_key, true)
                    from unnest(p_zone_ids, p_bucket_keys) as k (zone_id, bucket_key);
                    raise;
            end;
        end if;
        -- Row by row in the order of the arrays: a subquery that locks is never merged into the query around it.
        if p_skip_locked then
            select array_agg(coalesce(h.head, s.head) order by k.position)
            into v_heads
            from unnest(p_zone_ids, p_bucket_keys, p_held) with ordinality as k (zone_id, bucket_key, held, position)
            left join lateral (
                select b as head
                from zone_bucket_lock b
                where k.held and b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
                for no key update skip locked
            ) h on true
            left join lateral (
                select b as head
                from zone_bucket_lock b
                where not k.held and b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
                offset 0 -- keeps the subquery whole: its condition is looked at before the index
            ) s on true;
            exit;
        end if;
        select array_agg(coalesce(h.head, s.head) order by k.position)
        into v_heads
        from unnest(p_zone_ids, p_bucket_keys, p_held) with ordinality as k (zone_id, bucket_key, held, position)
        left join lateral (
            select b as head
            from zone_bucket_lock b
            where k.held and b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
            for no key update
        ) h on true
        left join lateral (
            select b as head
            from zone_bucket_lock b
            where not k.held and b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
            offset 0
        ) s on true;
        -- One that was removed while this call waited is made again.
        exit when not exists (
            select
            from unnest(p_held, v_heads) as k (held, seq)
            where k.held and k.seq is null
        );
    end loop;
    if false = any(p_held)
        and (
            exists (select from zone_bucket_removed r where r.zone_id = any(p_zone_ids))
            or exists (select from tallygate_shard)
        )
    then
        for v_position in 1 .. cardinality(p_held) loop
            continue when p_held[v_position] or (v_heads[v_position]).seq is not null;
            v_head := zone_head_new(p_zone_ids[v_position], p_bucket_keys[v_position]);
            if v_head.seq > 0 then
                v_heads[v_position] := v_head;
            end if;
        end loop;
    end if;
    perform zone_error('elsewhere', h.moved_to)
    from unnest(v_heads) as h
    where h.moved_to is not null;
    return v_heads;
end
$$;
