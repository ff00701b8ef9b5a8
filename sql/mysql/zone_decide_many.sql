-- zone_decide_many: decides N checks into the temporary table zone_decision; not called from outside.
--
-- Arguments  p_checks  as for zone_check_many
--            p_joined  the transaction is the caller's and may be of any isolation level
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_decide
drop procedure if exists zone_decide_many;
create procedure zone_decide_many(in p_checks json, in p_joined boolean)
sql security definer
begin
    declare v_done           boolean default false;
    declare v_found          bigint;
    declare v_position       int;
    declare v_zone_id        int;
    declare v_bucket_key     varchar(4000) character set utf8mb4;
    declare v_txn            varchar(4000) character set utf8mb4;
    declare v_txn_id         varbinary(2000);
    declare v_cost           bigint;
    declare v_fresh          boolean;
    declare v_record         boolean;
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
    -- Sorted before any row is locked: a join that is ordered afterwards locks in the order of its input.
    declare c_bucket cursor for
        select c.zone_id, max(c.bucket_key)
        from json_table(p_checks, '$[*]' columns (
            zone_id    int path '$.zone_id',
            bucket_key varchar(4000) character set utf8mb4 path '$.key',
            cost       bigint path '$.cost',
            record     boolean path '$.record'
        )) c
        where c.cost > 0 or coalesce(c.record, false)
        group by c.zone_id, cast(c.bucket_key as binary)
        order by c.zone_id, cast(c.bucket_key as binary);
    declare c_check cursor for
        select c.position, c.zone_id, c.bucket_key, c.txn, unhex(replace(c.txn, '-', '')), c.cost, c.fresh, c.record
        from json_table(p_checks, '$[*]' columns (
            position   for ordinality,
            zone_id    int path '$.zone_id',
            bucket_key varchar(4000) character set utf8mb4 path '$.key',
            txn        varchar(4000) character set utf8mb4 path '$.txn',
            cost       bigint path '$.cost',
            fresh      boolean path '$.fresh',
            record     boolean path '$.record'
        )) c
        order by c.position;
    declare continue handler for not found set v_done = true;

    create temporary table if not exists zone_decision (
        position       int not null primary key,
        id             bigint,
        txn_id         binary(16),
        zone_id        int,
        zone_version   int,
        bucket_key     varbinary(255),
        seq            bigint,
        blocked        boolean,
        reason         varchar(20) character set ascii,
        cost           bigint,
        zone_limit     bigint,
        remaining      bigint,
        retry_after_us bigint,
        created_at     datetime(6),
        replayed       boolean
    ) engine = memory;
    delete from zone_decision;

    open c_bucket;
    buckets: loop
        fetch c_bucket into v_zone_id, v_bucket_key;
        if v_done then
            leave buckets;
        end if;
        if p_joined then
            call zone_bucket_open(v_zone_id, v_bucket_key);
        end if;
        hold: loop
            set v_found = null;
            select b.seq
            into v_found
            from zone_bucket_lock b
            where b.zone_id = v_zone_id and b.bucket_key = cast(v_bucket_key as binary)
            for update;
            set v_done = false;
            if v_found is not null then
                leave hold;
            end if;
            call zone_bucket_open(v_zone_id, v_bucket_key);
        end loop;
    end loop;
    close c_bucket;

    set v_done = false;
    open c_check;
    checks: loop
        fetch c_check into v_position, v_zone_id, v_bucket_key, v_txn, v_txn_id, v_cost, v_fresh, v_record;
        if v_done then
            leave checks;
        end if;
        if v_txn is not null and coalesce(length(v_txn_id), 0) <> 16 then
            signal sqlstate 'TG003'
                set mysql_errno = 31003, message_text = 'a txn is no UUID; write 32 hex digits, with or without dashes';
        end if;
        call zone_decide(
            v_zone_id, v_bucket_key, v_txn_id, v_cost, v_fresh, v_record, p_joined, v_id, v_zone_version, v_seq,
            v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_created_at, v_replayed
        );
        insert into zone_decision (
            position, id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit,
            remaining, retry_after_us, created_at, replayed
        )
        values (
            v_position, v_id, v_txn_id, v_zone_id, v_zone_version, cast(v_bucket_key as binary), v_seq, v_blocked,
            v_reason, v_cost, v_zone_limit, v_remaining, v_retry_after_us, v_created_at, v_replayed
        );
        set v_done = false;
    end loop;
    close c_check;
end;
