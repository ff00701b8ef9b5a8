-- check_velocity: may one more transaction of this bucket pass?
--
-- A check of cost 1 under a transaction id made for it, in a transaction of its own.
--
-- Arguments  p_zone        the zone: its name, or its number
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Result     one row: blocked (0 or 1), id of the ledger row, the zone, the bucket, the rate, and the window
--            in seconds, rounded up
-- Locks      the bucket's row, until it returns
-- Errors     those of zone_check_own
drop procedure if exists check_velocity;
create procedure check_velocity(
    in p_zone       varbinary(4000),
    in p_bucket_key varbinary(4000)
)
sql security definer
begin
    declare v_zone_id int;
    declare v_txn_id         binary(16);
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
    declare v_rate           bigint;
    declare v_window_us      bigint;
    -- Fails with 1568 inside an open transaction, and leaves that as it is.
    set transaction isolation level read committed;
    begin
        declare exit handler for sqlexception, 1265
        begin
            rollback and no chain no release;
            resignal;
        end;
        start transaction;
        call zone_number(p_zone, v_zone_id);
        call zone_answer(
            v_zone_id, p_bucket_key, v_txn_id, 1, true, null, false, null, null, false, v_id, v_zone_version,
            v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_at,
            v_created_at, v_replayed
        );
        select v.rate, v.window_us
        into v_rate, v_window_us
        from zone_version v
        where v.zone_id = v_zone_id and v.version = v_zone_version;
        commit and no chain no release;
    end;
    -- No table: with autocommit off that would begin a transaction.
    select v_blocked as blocked, v_id as id, v_zone_id as zone_id,
        convert(p_bucket_key using utf8mb4) as bucket_key, v_rate as rate,
        (v_window_us + 999999) div 1000000 as window_seconds;
end;
