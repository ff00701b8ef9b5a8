-- zone_charges: what a transaction was charged, in every bucket: what its refund must know.
--
-- Arguments  p_txn_id  the transaction, 16 bytes
-- Result     a row for each of its checks, newest first: the zone's name, the bucket, the kind of its row, what it
--            spent, and whether it holds a reservation or a slot; none when there is no such transaction
-- Locks      nothing
drop procedure if exists zone_charges;
create procedure zone_charges(in p_txn_id varbinary(100))
sql security definer
begin
    select z.name as zone, convert(t.bucket_key using utf8mb4) as bucket_key, t.kind, t.spent,
        t.ends_at is not null and t.member is null as holds
    from zone_txn t
    join zone_master z on z.id = t.zone_id
    where t.txn_id = p_txn_id and t.kind in ('check', 'reserve', 'unchecked', 'local') and t.sealed
    order by t.created_at desc, t.id desc;
end;
