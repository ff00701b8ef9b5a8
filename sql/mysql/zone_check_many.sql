-- zone_check_many: N checks in one call inside the caller's transaction, with the same decisions as N calls
-- of zone_check in that order.
--
-- Arguments  p_checks        a JSON array with an object for each: zone_id, key, txn (32 hex digits), cost,
--                            fresh, record, with the meaning of zone_check's arguments
-- Result     a row for each, in the order of the array, with the columns of zone_check's
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the caller's transaction ends
-- Errors     those of zone_check
drop procedure if exists zone_check_many;
create procedure zone_check_many(in p_checks json)
sql security definer
begin
    call zone_transaction_require();
    call zone_decide_many(p_checks, true);
    select d.id, d.txn_id, d.zone_id, d.zone_version, d.bucket_key, d.seq, d.blocked, d.reason, d.cost, d.zone_limit,
        d.remaining, d.retry_after_us, d.created_at, d.replayed
    from zone_decision d
    order by d.position;
end;
