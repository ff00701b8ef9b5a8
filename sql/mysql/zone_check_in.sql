-- zone_check_in: decides one check of a plain zone and records it, inside the caller's transaction.
--
-- The decision is committed, or taken back, with that transaction. Outside one it refuses: there the lock
-- would end with the statement that takes it.
--
-- Arguments  p_zone         the zone: its name, or its number
--            p_bucket_key   the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id       the transaction, 16 bytes; null makes a version 7 UUID
--            p_cost         what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_record       leave a row even for a peek
--            p_lock_wait_s  the longest wait for a lock in seconds, from 1; null leaves the session's
--                           innodb_lock_wait_timeout as it is
-- Result     one row: id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit,
--            remaining, retry_after_us, created_at, replayed; id and seq are null for a peek
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     TG001 (31001) there is no such zone; TG002 (31002) the transaction was decided with another cost or about a member;
--            TG003 (31003) a value is out of range; TG004 (31004) the bucket's total is full; TG005 (31005) the ledger lacks rows
--            of the window; TG011 (31011) another database has the bucket; TG012 (31012) the zone is not plain; 1205 the lock was
--            not had in time; TG006 (31006) no transaction is open; TG007 (31007) the
--            transaction's snapshot is older than the bucket's last row: run it again
drop procedure if exists zone_check_in;
create procedure zone_check_in(
    in p_zone        varbinary(4000),
    in p_bucket_key  varbinary(4000),
    in p_txn_id      varbinary(100),
    in p_cost        varbinary(100),
    in p_record      varbinary(100),
    in p_lock_wait_s varbinary(100)
)
sql security definer
begin
    call zone_decide('check', true, p_zone, p_bucket_key, p_txn_id, p_cost, p_record, true, p_lock_wait_s, null, null);
end;
