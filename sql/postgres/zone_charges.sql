-- zone_charges: what a transaction was charged, in every bucket: what its refund must know.
--
-- Arguments  p_txn_id  the transaction
-- Result     a row for each of its checks, newest first: the zone's name, the bucket, the kind of its row, what it
--            spent, and whether it holds a reservation or a slot; none when there is no such transaction
-- Locks      nothing
create function zone_charges(p_txn_id uuid)
returns table (zone text, bucket_key text, kind text, spent bigint, holds boolean)
language sql
stable
security definer
set search_path from current
as $$
    select z.name, t.bucket_key, t.kind, t.spent, t.ends_at is not null and t.member is null
    from zone_txn t
    join zone_master z on z.id = t.zone_id
    where t.txn_id = p_txn_id and t.kind in ('check', 'reserve', 'unchecked', 'local')
    order by t.created_at desc, t.id desc
$$;
