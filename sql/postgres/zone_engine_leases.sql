-- zone_engine_leases: the leases of a bucket that have not been replaced, for a process that grants another.
--
-- Arguments  p_zone_id, p_bucket_key  the bucket
-- Result     of each its row in the ledger, since when
--            the client has had leases that followed each other, whose it is, what was wanted, for how many
--            and how important, what was granted, and when it ends. Times are microseconds since 1970
-- Locks      nothing
create function zone_engine_leases(p_zone_id int, p_bucket_key text)
returns table (
    seq bigint, since_us bigint, member text, wants bigint, weight int, band smallint, has bigint, ends_us bigint
)
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
    select h.seq, zone_us(t.target_at), h.member, t.cost, t.checks::int, t.band, h.amount::bigint, zone_us(h.ends_at)
    from zone_hold h
    cross join lateral (
        select t.target_at, t.cost, t.checks, t.band
        from zone_txn t
        where t.zone_id = h.zone_id and t.bucket_key = h.bucket_key and t.created_at = h.charged_at and t.seq = h.seq
            and t.kind = 'lease'
        offset 0 -- the row of each by its own key
    ) t
    where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key;
end
$$;
