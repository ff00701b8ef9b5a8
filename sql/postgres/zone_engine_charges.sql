-- zone_engine_charges: the rows of buckets from a time on, for a process that will remember what was charged.
--
-- Arguments  p_zone_ids, p_bucket_keys  the buckets
--            p_from   of each, the time
--            p_limit  the most rows of a bucket
-- Result     their first rows from there on, at most so many of each: the place of the bucket, from 1; when, how much was
--            spent, and how much in all up to there
-- Locks      nothing
create function zone_engine_charges(p_zone_ids int[], p_bucket_keys text[], p_from timestamptz[], p_limit int)
returns table (place int, created_at timestamptz, spent bigint, spent_total bigint)
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_asked record;
begin
    for v_asked in
        select c.zone_id, c.bucket_key, c.from_at, c.position::int
        from unnest(p_zone_ids, p_bucket_keys, p_from) with ordinality as c (zone_id, bucket_key, from_at, position)
    loop
        return query
        select v_asked.position, t.created_at, t.spent, t.spent_total
        from zone_txn t
        where t.zone_id = v_asked.zone_id and t.bucket_key = v_asked.bucket_key and t.created_at >= v_asked.from_at
        order by t.created_at, t.seq
        limit p_limit;
    end loop;
end
$$;
