-- zone_call: one call of a routine for SQL callers, in a transaction of its own or the caller's; not called from outside.
--
-- Arguments  p_form    the routine, whose answer it tells: check, velocity, tokens, refund or engine
--            p_joined  the caller's transaction, which must be open; else one of its own, which must not
--            p_zone    the zone, its name or its number; null for that of a rate_limiting_request, which is made if there is none
--            p_refill_per_sec, p_window_seconds  as there
--            p_named   the transaction may have been decided before
--            the others as in zone_check
-- Locks      the bucket's row, until the transaction ends; of a new zone its name
-- Errors     those of zone_check and zone_check_in
drop procedure if exists zone_call;
create procedure zone_call(
    in p_form           varchar(20) character set ascii,
    in p_joined         boolean,
    in p_zone           varbinary(4000),
    in p_bucket_key     varbinary(4000),
    in p_txn_id         varbinary(100),
    in p_cost           varbinary(100),
    in p_record         varbinary(100),
    in p_named          boolean,
    in p_lock_wait_s    varbinary(100),
    in p_refill_per_sec varbinary(100),
    in p_window_seconds varbinary(100)
)
sql security definer
begin
    declare v_zone_id        int;
    declare v_txn_id         varbinary(100) default p_txn_id;
    declare v_id             bigint;
    declare v_zone_version   int;
    declare v_seq            bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_created_at     datetime(6);
    declare v_replayed       boolean;
    declare v_total          bigint;
    declare v_level          bigint;
    declare v_strikes        bigint;
    declare v_salt           binary(16);
    declare v_row_hash       binary(32);
    declare v_simple         boolean;
    declare v_back           bigint;
    declare v_back_seq       bigint;
    declare v_back_us        bigint;
    declare v_rate           bigint;
    declare v_window_us      bigint;
    declare v_lock_wait_s    int default @@session.innodb_lock_wait_timeout;
    declare v_wait_s         int default coalesce(p_lock_wait_s, v_lock_wait_s);
    if p_joined then
        call zone_transaction_require();
    else
        -- Fails with 1568 inside an open transaction, and leaves that as it is.
        set transaction isolation level read committed;
    end if;
    begin
        declare exit handler for sqlexception, 1265
        begin
            if not p_joined then
                rollback and no chain no release;
            end if;
            set innodb_lock_wait_timeout = v_lock_wait_s;
            resignal;
        end;
        set innodb_lock_wait_timeout = v_wait_s;
        if not p_joined then
            start transaction;
        end if;
        if p_zone is null and p_form = 'tokens' then
            call zone_token_bucket_make(p_refill_per_sec, p_window_seconds, v_zone_id);
        else
            call zone_number(p_zone, v_zone_id);
        end if;
        if p_form = 'refund' then
            call zone_charge_find(
                v_zone_id, p_bucket_key, v_txn_id, p_joined, v_id, v_zone_version, v_seq, v_remaining, v_created_at, v_back,
                v_back_seq, v_back_us
            );
        end if;
        if v_id is null then
            call zone_decide(
                v_zone_id, p_bucket_key, v_txn_id, p_cost, p_record, p_joined, p_form <> 'engine', p_named, v_back, v_back_seq, v_back_us,
                v_id, v_zone_version, v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_created_at,
                v_replayed, v_total, v_level, v_strikes, v_salt, v_row_hash, v_simple
            );
        else
            set v_replayed = true;
        end if;
        if p_form = 'velocity' then
            -- Before the end: in a session without autocommit a read after it would begin another transaction.
            select v.rate, v.window_us
            into v_rate, v_window_us
            from zone_version v
            where v.zone_id = v_zone_id and v.version = v_zone_version;
        end if;
        if not p_joined then
            commit and no chain no release;
        end if;
        set innodb_lock_wait_timeout = v_lock_wait_s;
    end;
    case p_form
        when 'check' then
            select v_id as id, v_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
                convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_blocked as blocked, v_reason as reason,
                cast(p_cost as signed) as cost, v_zone_limit as zone_limit, v_remaining as remaining,
                v_retry_after_us as retry_after_us, v_created_at as created_at, v_replayed as replayed;
        when 'velocity' then
            select v_blocked as blocked, v_id as id, v_zone_id as zone_id, convert(p_bucket_key using utf8mb4) as bucket_key,
                v_rate as rate, (v_window_us + 999999) div 1000000 as window_seconds;
        when 'tokens' then
            select if(v_blocked, -1, v_remaining) as rate_limiting_request;
        when 'refund' then
            select v_id as id, v_txn_id as txn_id, v_zone_id as zone_id, v_zone_version as zone_version,
                convert(p_bucket_key using utf8mb4) as bucket_key, v_seq as seq, v_back as cost, v_remaining as remaining,
                v_created_at as created_at, v_replayed as replayed;
        when 'engine' then
            select v_zone_version as zone_version, v_seq as seq, v_blocked as blocked, v_reason as reason,
                v_zone_limit as zone_limit, v_remaining as remaining, v_retry_after_us as retry_after_us, v_created_at as created_at,
                v_replayed as replayed, v_total as spent_total, v_level as level, v_strikes as strikes, v_salt as salt,
                v_row_hash as row_hash, v_simple as is_simple;
    end case;
end;
