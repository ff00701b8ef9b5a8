-- zone_engine_payloads: what was given with items, and what of it their rows say.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_seqs                   the rows of the items' offers
-- Result     of each that is there its row, the payload and the recorded hash of it, either of which may be null
-- Locks      nothing
create function zone_engine_payloads(p_zone_id int, p_bucket_key text, p_seqs bigint[])
returns table (seq bigint, payload text, recorded text)
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select i.seq, i.payload, t.member
    from unnest(p_seqs) as s (seq)
    cross join lateral (
        select i.seq, i.payload, i.offered_at
        from zone_item i
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.seq = s.seq
        offset 0
    ) i
    cross join lateral (
        select t.member
        from zone_txn t
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = i.offered_at and t.seq = i.seq
        offset 0
    ) t;
end
$$;
