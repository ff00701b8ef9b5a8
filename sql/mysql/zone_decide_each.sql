-- zone_decide_each: decides N checks inside the caller's transaction into the temporary table zone_decision; not
-- called from outside.
--
-- One after the other by zone_answer, which knows how to see past an old snapshot. Statements over all checks at
-- once would not do here: above READ COMMITTED the servers lock what such a statement reads of the ledger, and
-- the gaps beside it.
--
-- Arguments  p_checks       as for zone_check_many
--            p_skip_locked  leave out the checks of buckets that somebody else holds
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_answer
drop procedure if exists zone_decide_each;
create procedure zone_decide_each(in p_checks json, in p_skip_locked boolean)
sql security definer
begin
    call zone_batch_read(p_checks);
    call zone_batch_hold(p_skip_locked, true);
    insert into zone_decision (position, txn_id, zone_id, bucket_key, cost)
    select c.position, c.txn_id, c.zone_id, c.bucket_key, c.cost
    from zone_batch_check c
    left join zone_batch_head h on h.bucket = c.bucket
    where h.bucket is null;
    insert into zone_batch_special (bucket)
    select h.bucket
    from zone_batch_head h;
    call zone_batch_each(true);
end;
