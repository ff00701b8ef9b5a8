-- zone_undo_own: gives a charge back, or settles it, in a transaction of its own.
--
-- Once: the same again is told, and nothing happens.
--
-- Arguments  p_zone          the zone: its name, or its number
--            p_bucket_key    the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_txn_id        the transaction that made the charge, 16 bytes
--            p_kind          refund, for what an ordinary check spent; settle or cancel, for a reservation; release,
--                            for a slot
--            p_cost          what a reservation comes to, 0 to 2^40 units; null for the others
--            p_lock_wait_s   the longest wait for a lock in seconds, from 1; null leaves the session's
--                            innodb_lock_wait_timeout as it is
-- Result     one row: id, txn_id, zone_id, zone_version, bucket_key, seq, cost, spent, remaining, created_at,
--            replayed
-- Locks      the bucket's row, until it returns
-- Errors     TG001 (31001) there is no such zone; TG002 (31002) there is nothing to give back, it ends otherwise, or
--            it was ended otherwise; TG003 (31003) a value is out of range, or there is no such transaction in the
--            bucket; TG004 (31004) the bucket's total is full; 1205 the lock was not had in time;
--            1568 a transaction is open; it stays as it is
drop procedure if exists zone_undo_own;
create procedure zone_undo_own(
    in p_zone        varbinary(4000),
    in p_bucket_key  varbinary(4000),
    in p_txn_id      varbinary(100),
    in p_kind        varbinary(4000),
    in p_cost        varbinary(100),
    in p_lock_wait_s varbinary(100)
)
sql security definer
begin
    declare v_zone_id int;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s      int default coalesce(p_lock_wait_s, v_lock_wait_s);
    declare v_id           bigint;
    declare v_zone_version int;
    declare v_seq          bigint;
    declare v_cost         bigint;
    declare v_spent        bigint;
    declare v_remaining    bigint;
    declare v_created_at   datetime(6);
    declare v_replayed     boolean;
    if p_kind is null or p_kind not in ('refund', 'settle', 'cancel', 'release') then
        call zone_error('kind', p_kind, 'refund, settle, cancel or release', null);
    end if;
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
        call zone_number(p_zone, v_zone_id);
        call zone_happen(
            v_zone_id, p_bucket_key, p_txn_id, p_kind, p_cost, false,
            v_id, v_zone_version, v_seq, v_cost, v_spent, v_remaining, v_created_at, v_replayed
        );
        commit and no chain no release;
        set innodb_lock_wait_timeout = v_lock_wait_s;
    end;
    select v_id as id, p_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
        convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_cost as cost, v_spent as spent,
        v_remaining as remaining, v_created_at as created_at, v_replayed as replayed;
end;
