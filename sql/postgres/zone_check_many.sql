-- zone_check_many: N checks in one call, with the same decisions as N calls in that order.
--
-- Joins the caller's transaction. All or nothing happens: an error in one check undoes the others.
--
-- Arguments  arrays of one length, one element for each check, with the meaning of zone_check's;
--            p_lock_wait_ms as there
-- Result     one zone_decision for each, in the order of the arrays
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_check
create function zone_check_many(
    p_zone_ids     int[],
    p_bucket_keys  text[],
    p_txn_ids      uuid[],
    p_costs        bigint[],
    p_fresh        boolean[],
    p_record       boolean[],
    p_lock_wait_ms int default null
)
returns setof zone_decision
language plpgsql
security definer
set search_path from current
as $$
declare
    v_bucket record;
    v_check  record;
begin
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    for v_bucket in
        select distinct c.zone_id, c.bucket_key collate "C" as bucket_key
        from unnest(p_zone_ids, p_bucket_keys, p_costs, p_record) as c (zone_id, bucket_key, cost, record)
        where c.cost > 0 or coalesce(c.record, false)
        order by c.zone_id, c.bucket_key collate "C"
    loop
        loop
            perform
            from zone_bucket_lock b
            where b.zone_id = v_bucket.zone_id and b.bucket_key = v_bucket.bucket_key
            for no key update;
            exit when found;
            perform zone_bucket_open(v_bucket.zone_id, v_bucket.bucket_key);
        end loop;
    end loop;
    for v_check in
        select c.zone_id, c.bucket_key, c.txn_id, c.cost, c.fresh, c.record
        from unnest(p_zone_ids, p_bucket_keys, p_txn_ids, p_costs, p_fresh, p_record)
            with ordinality as c (zone_id, bucket_key, txn_id, cost, fresh, record, position)
        order by c.position
    loop
        return next zone_check(
            v_check.zone_id, v_check.bucket_key, v_check.txn_id, v_check.cost, v_check.fresh, v_check.record
        );
    end loop;
end
$$;
