-- zone_recorded_past: what was recorded under a transaction in a bucket before. Not called from outside.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_txn_id      the transaction
--            p_kinds       one of these kinds
-- Result     the record, as one that is told again; null when there is none
-- Locks      nothing
create function zone_recorded_past(p_zone_id int, p_bucket_key text, p_txn_id uuid, p_kinds text[])
returns zone_recorded
language plpgsql
as $$
declare
    v_past zone_recorded;
begin
    -- In this order there is one index only to read by.
    select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.kind, t.cost, t.spent, t.remaining,
        t.created_at, true
    into v_past
    from zone_txn t
    where t.bucket_key = p_bucket_key -- finds the shard, where there are several
        and (t.zone_id, t.bucket_key, t.txn_id) >= (p_zone_id, p_bucket_key, p_txn_id)
        and (t.zone_id, t.bucket_key, t.txn_id) <= (p_zone_id, p_bucket_key, p_txn_id)
        and t.kind = any (p_kinds)
    order by t.zone_id, t.bucket_key, t.txn_id
    limit 1;
    return v_past;
end
$$;
