-- zone_refund_in: gives a charge back, inside the caller's transaction.
--
-- Once: the same again is told, and nothing happens. Never refused for want of room.
--
-- Arguments  p_zone         the zone: its name, or its number
--            p_bucket_key   the bucket
--            p_txn_id       the transaction that made the charge, 16 bytes
--            p_lock_wait_s  as in zone_check
-- Result     one row: id, txn_id, zone_id, zone_version, bucket_key, seq, cost, remaining, created_at, replayed; cost is what was given
--            back, remaining what a peek finds then
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     TG001 (31001) there is no such zone; TG002 (31002) there is nothing to give back, or not so, or it was ended otherwise;
--            TG003 (31003) the transaction was not decided in this bucket; TG012 (31012) the zone is not plain; 1205 the lock was not
--            had in time; TG006 (31006) no transaction is open; TG007 (31007) the
--            transaction's snapshot is older than the bucket's last row: run it again
drop procedure if exists zone_refund_in;
create procedure zone_refund_in(
    in p_zone        varbinary(4000),
    in p_bucket_key  varbinary(4000),
    in p_txn_id      varbinary(100),
    in p_lock_wait_s varbinary(100)
)
sql security definer
begin
    call zone_decide('refund', true, p_zone, p_bucket_key, p_txn_id, 0, true, false, p_lock_wait_s, null, null);
end;
