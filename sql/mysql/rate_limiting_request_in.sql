-- rate_limiting_request_in: takes one token from the bucket of a caller, inside that caller's transaction.
--
-- As rate_limiting_request. The token, and the zone if it was made, are committed or taken back with the caller's
-- transaction.
--
-- Arguments  rate_id         the bucket, 1 to 255 bytes of UTF-8 without control characters
--            refill_per_sec  tokens a second, from 1
--            window_seconds  seconds in which an empty bucket fills, from 1
-- Result     one row: rate_limiting_request, the tokens left, or -1 when there was none to take
-- Locks      the bucket's row, until the caller's transaction ends; on the first call with these parameters also
--            the zone's name
-- Errors     those of zone_check; TG003 (31003) also when the bucket would hold more than 2147483647 tokens
drop procedure if exists rate_limiting_request_in;
create procedure rate_limiting_request_in(
    in rate_id        varbinary(4000),
    in refill_per_sec varbinary(100),
    in window_seconds varbinary(100)
)
sql security definer
begin
    declare v_refill_per_sec int default refill_per_sec;
    declare v_window_seconds int default window_seconds;
    declare v_name           varchar(100) character set utf8mb4 collate utf8mb4_bin
        default concat('rate_limiting_request ', v_refill_per_sec, '/s for ', v_window_seconds, ' s');
    declare v_zone_id        int;
    declare v_seen           int;
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
    if v_refill_per_sec is null or v_window_seconds is null or v_refill_per_sec < 1 or v_window_seconds < 1
        or cast(v_refill_per_sec as signed) * v_window_seconds > 2147483647
    then
        call zone_error('tokens', v_refill_per_sec, coalesce(v_window_seconds, 'null'), null);
    end if;
    call zone_transaction_require();
    select z.id into v_zone_id from zone_master z where z.name = v_name;
    if v_zone_id is null then
        call zone_token_bucket_make(v_name, v_refill_per_sec, v_window_seconds, v_zone_id);
        -- Somebody else may have made it since the caller's snapshot, which then does not show it.
        select z.id into v_seen from zone_master z where z.id = v_zone_id;
        if v_seen is null then
            call zone_error('old snapshot', null, null, null);
        end if;
    end if;
    call zone_answer(
        v_zone_id, rate_id, v_txn_id, 1, true, null, false, null, null, true, v_id, v_zone_version, v_seq,
        v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_at, v_created_at,
        v_replayed
    );
    select if(v_blocked, -1, v_remaining) as rate_limiting_request;
end;
