-- zone_unchecked: records a check that passed while the database did not answer, inside the caller's transaction.
--
-- The part of zone_mark that an application may use. Once for each transaction that was not decided: the same
-- again is told.
--
-- Arguments  p_zone         the zone: its name, or its number
--            p_bucket_key   the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id       the check's transaction, 16 bytes
--            p_cost         what it asked for, 0 to 2^40 units, which is noted and not charged
--            p_note         when it passed, and what else is to be known
--            p_lock_wait_s  as in zone_check
-- Result     one row, as of zone_mark
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) a value is out of range; 1205 the lock was not had in
--            time;
--            TG006 (31006) no transaction is open; TG007 (31007) the transaction's snapshot is too old: run it again
drop procedure if exists zone_unchecked;
create procedure zone_unchecked(
    in p_zone        varbinary(4000),
    in p_bucket_key  varbinary(4000),
    in p_txn_id      varbinary(100),
    in p_cost        varbinary(100),
    in p_note        varbinary(8000),
    in p_lock_wait_s varbinary(100)
)
sql security definer
begin
    call zone_mark(
        p_zone, p_bucket_key, p_txn_id, 'unchecked', p_cost, null, null, null, null, null, false, p_note, null,
        p_lock_wait_s
    );
end;
