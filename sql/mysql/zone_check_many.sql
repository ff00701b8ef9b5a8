-- zone_check_many: N checks in one call inside the caller's transaction, with the same decisions as N calls
-- of zone_check in that order.
--
-- When one fails, those before it are decided and charged in the caller's transaction: roll that back.
--
-- Arguments  p_checks        a JSON array with an object for each: zone_id (or the name), key, txn (a UUID in hex), cost,
--                            record, critical, member, ttl_us, with the meaning of zone_check's arguments;
--                            without txn one is made, without record and critical they are false
--            p_lock_wait_s   the longest wait for a lock in seconds, from 1; null leaves the session's
--                            innodb_lock_wait_timeout as it is
--            p_skip_locked   leave the checks of buckets that somebody else holds undecided instead of waiting;
--                            null is false
-- Result     a row for each, in the order of the array, with the columns of zone_check's; of one that was left
--            undecided zone_id, bucket_key, txn_id and cost, and everything else null
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the caller's transaction ends
-- Errors     those of zone_check
drop procedure if exists zone_check_many;
create procedure zone_check_many(
    in p_checks      longblob,
    in p_lock_wait_s varbinary(100),
    in p_skip_locked varbinary(100)
)
sql security definer
begin
    declare v_told        longtext character set utf8mb4;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s      int default coalesce(p_lock_wait_s, v_lock_wait_s);
    declare exit handler for sqlexception, 1265
    begin
        set innodb_lock_wait_timeout = v_lock_wait_s;
        resignal;
    end;
    call zone_transaction_require();
    set innodb_lock_wait_timeout = v_wait_s;
    call zone_decide_each(convert(p_checks using utf8mb4), p_skip_locked, true, v_told);
    if v_told is null then
        call zone_error('killed', null, null, null);
    end if;
    set innodb_lock_wait_timeout = v_lock_wait_s;
    call zone_checks_tell(v_told);
end;
