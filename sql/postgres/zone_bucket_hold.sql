-- zone_bucket_hold: locks buckets and reads their heads; those that have no row get one. Not called from outside.
--
-- Arguments  p_zone_ids     the zones
--            p_bucket_keys  the buckets, each pair once, in the byte order of (zone_id, bucket_key)
--            p_held         false for a bucket that is only looked at: it is neither made nor locked
-- Result     their rows in the same order; null for one that is looked at and not there
-- Locks      the buckets' rows in that order, see zone_bucket_take, until the transaction ends
-- Errors     those of zone_bucket_take
create function zone_bucket_hold(p_zone_ids int[], p_bucket_keys text[], p_held boolean[])
returns zone_bucket_lock[]
language plpgsql
as $$
declare
    v_heads   zone_bucket_lock[];
    v_head    zone_bucket_lock;
    v_zone_id int;
    v_key     text;
begin
    if true <> all(p_held) and cardinality(p_held) > 1 then
        select array_agg(s.head order by k.position)
        into v_heads
        from unnest(p_zone_ids, p_bucket_keys) with ordinality as k (zone_id, bucket_key, position)
        left join lateral (
            select b as head
            from zone_bucket_lock b
            where b.zone_id = k.zone_id and b.bucket_key = k.bucket_key
            offset 0 -- keeps the subquery whole: as a join it could be read by zone alone
        ) s on true;
    else
        -- Makes or locks each in its turn. To lock some, make others and lock the rest would be out of order, and two such
        -- calls could wait for each other.
        for v_place in 1 .. cardinality(p_held) loop
            v_zone_id := p_zone_ids[v_place];
            v_key := p_bucket_keys[v_place];
            if p_held[v_place] then
                v_head := zone_bucket_take(v_zone_id, v_key, null);
            else
                select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried,
                    b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans,
                    b.holding, b.bucket_key, b.salt, b.row_hash, b.moved_to
                into v_head
                from zone_bucket_lock b
                where b.zone_id = v_zone_id and b.bucket_key = v_key;
            end if;
            v_heads[v_place] := v_head;
        end loop;
    end if;
    if false = any(p_held)
        and (
            exists (select from zone_bucket_removed r where r.zone_id = any(p_zone_ids))
            or exists (select from tallygate_shard)
        )
    then
        for v_place in 1 .. cardinality(p_held) loop
            continue when (v_heads[v_place]).seq is not null;
            v_head := zone_head_new(p_zone_ids[v_place], p_bucket_keys[v_place]);
            if v_head.seq > 0 then
                v_heads[v_place] := v_head;
            end if;
        end loop;
    end if;
    perform zone_error('elsewhere', h.moved_to)
    from unnest(v_heads) as h
    where h.moved_to is not null;
    return v_heads;
end
$$;
