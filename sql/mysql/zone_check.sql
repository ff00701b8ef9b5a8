-- zone_check: decides one check and records it, inside the caller's transaction.
--
-- The decision is committed, or taken back, with that transaction. Outside one it refuses: there the lock
-- would end with the statement that takes it.
--
-- Arguments  p_zone          the zone: its name, or its number
--            p_bucket_key    the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id        the transaction, 16 bytes; null makes a version 7 UUID
--            p_cost          what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_record        leave a row even for a peek
--            p_lock_wait_s   the longest wait for a lock in seconds, from 1; null leaves the session's
--                            innodb_lock_wait_timeout as it is
--            p_checks        null: an ordinary check. Else so many checks which were answered blocked from
--                            memory are recorded as one row: nothing is decided or spent
--            p_critical      it may take from what the zone keeps in reserve; null is false
--            p_member        whom it is about, 1 to 255 bytes as a key, in a zone that counts members
--            p_ttl_us        a reservation: what it charges ends by itself after so long, 1 to 315576000000000
--                            microseconds; null for an ordinary check
-- Result     one row: id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit,
--            remaining, retry_after_us, delay_us, ends_at, created_at, replayed; id and seq are null for a peek
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     TG001 (31001) there is no such zone; TG002 (31002) the transaction was decided with another
--            cost or about another member; TG003 (31003) a value is out of range; TG004 (31004) the bucket's total is full;
--            TG005 (31005) the ledger lacks rows of the window; 1205 the lock was not had in time;
--            TG006 (31006) no transaction is open; TG007 (31007) the transaction's snapshot is older than the
--            bucket's last row, and the bucket holds what such a snapshot does not show: run it again
drop procedure if exists zone_check;
create procedure zone_check(
    in p_zone        varbinary(4000),
    in p_bucket_key  varbinary(4000),
    in p_txn_id      varbinary(100),
    in p_cost        varbinary(100),
    in p_record      varbinary(100),
    in p_lock_wait_s varbinary(100),
    in p_checks      varbinary(100),
    in p_critical    varbinary(100),
    in p_member      varbinary(4000),
    in p_ttl_us      varbinary(100)
)
sql security definer
begin
    declare v_zone_id int;
    declare v_txn_id         varbinary(100) default p_txn_id;
    declare v_id             bigint;
    declare v_zone_version   int;
    declare v_seq            bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_delay_us       bigint;
    declare v_ends_at        datetime(6);
    declare v_created_at     datetime(6);
    declare v_replayed       boolean;
    declare v_lock_wait_s    int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s         int default coalesce(p_lock_wait_s, v_lock_wait_s);
    declare exit handler for sqlexception, 1265
    begin
        set innodb_lock_wait_timeout = v_lock_wait_s;
        resignal;
    end;
    call zone_transaction_require();
    set innodb_lock_wait_timeout = v_wait_s;
    call zone_number(p_zone, v_zone_id);
    call zone_answer(
        v_zone_id, p_bucket_key, v_txn_id, p_cost, p_record, p_checks, p_critical, p_member, p_ttl_us, true,
        v_id, v_zone_version, v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us,
        v_ends_at, v_created_at, v_replayed
    );
    set innodb_lock_wait_timeout = v_lock_wait_s;
    select v_id as id, v_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
        convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_blocked as blocked, v_reason as reason,
        cast(p_cost as signed) as cost, v_zone_limit as zone_limit, v_remaining as remaining, v_retry_after_us as retry_after_us,
        v_delay_us as delay_us, v_ends_at as ends_at, v_created_at as created_at, v_replayed as replayed;
end;
