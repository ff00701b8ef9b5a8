-- zone_check_all_own: several limits of one transaction in a transaction of its own: all pass, or none is spent from.
--
-- When one is blocked none is spent from: those that would have passed say held_back. A zone in shadow mode holds
-- nothing back.
--
-- Arguments  p_checks        a JSON array as for zone_check_many, of different buckets and one transaction
--            p_lock_wait_s   the longest wait for a lock in seconds, from 1; null leaves the session's
--                            innodb_lock_wait_timeout as it is
-- Result     a row for each, in the order of the array, with the columns of zone_check's
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until it returns
-- Errors     those of zone_check_own; TG002 (31002) also when the transaction was decided with other buckets
drop procedure if exists zone_check_all_own;
create procedure zone_check_all_own(in p_checks longblob, in p_lock_wait_s varbinary(100))
sql security definer
begin
    declare v_told        longtext character set utf8mb4;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s      int default coalesce(p_lock_wait_s, v_lock_wait_s);
    -- Fails with 1568 inside an open transaction, and leaves that as it is.
    set transaction isolation level read committed;
    begin
        declare exit handler for sqlexception, 1265
        begin
            rollback and no chain no release;
            set innodb_lock_wait_timeout = v_lock_wait_s;
            resignal;
        end;
        set innodb_lock_wait_timeout = v_wait_s;
        start transaction;
        call zone_decide_all(convert(p_checks using utf8mb4), false, v_told);
        if v_told is null then
            call zone_error('killed', null, null, null);
        end if;
        commit and no chain no release;
        set innodb_lock_wait_timeout = v_lock_wait_s;
    end;
    call zone_checks_tell(v_told);
end;
