-- zone_check_many_own: N checks in one call, in a transaction of its own: all or nothing happens.
--
-- Arguments  p_checks        a JSON array with an object for each: zone_id, key, txn (a UUID in hex), cost,
--                            record, critical, member, ttl_us, with the meaning of zone_check's arguments;
--                            without txn one is made, without record and critical they are false
--            p_lock_wait_s   the longest wait for a lock in seconds, from 1; null leaves the session's
--                            innodb_lock_wait_timeout as it is
--            p_skip_locked   leave the checks of buckets that somebody else holds undecided instead of waiting;
--                            null is false
-- Result     a row for each, in the order of the array, with the columns of zone_check's; of one that was left
--            undecided zone_id, bucket_key, txn_id and cost, and everything else null
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until it returns
-- Errors     those of zone_check_own
drop procedure if exists zone_check_many_own;
create procedure zone_check_many_own(in p_checks json, in p_lock_wait_s int, in p_skip_locked boolean)
sql security definer
begin
    declare v_lock_wait_s  int default @@session.innodb_lock_wait_timeout;
    declare v_safe_updates boolean default @@session.sql_safe_updates;
    -- Fails with 1568 inside an open transaction, and leaves that as it is.
    set transaction isolation level read committed;
    begin
        declare exit handler for sqlexception
        begin
            rollback and no chain no release;
            call zone_batch_close();
            set innodb_lock_wait_timeout = v_lock_wait_s;
            set sql_safe_updates = v_safe_updates;
            resignal;
        end;
        set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
        set sql_safe_updates = false;
        start transaction;
        call zone_decide_many(p_checks, p_skip_locked);
        commit and no chain no release;
        set innodb_lock_wait_timeout = v_lock_wait_s;
        set sql_safe_updates = v_safe_updates;
    end;
    select d.id, d.txn_id, d.zone_id, d.zone_version, convert(d.bucket_key using utf8mb4) as bucket_key, d.seq,
        d.blocked, d.reason, d.cost, d.zone_limit,
        d.remaining, d.retry_after_us, d.delay_us, d.ends_at, d.created_at, d.replayed
    from zone_decision d
    order by d.position;
    call zone_batch_close();
end;
