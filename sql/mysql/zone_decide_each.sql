-- zone_decide_each: decides N checks inside the caller's transaction into the temporary table zone_decision; not
-- called from outside.
--
-- One after the other by zone_decide, which knows how to see past an old snapshot. Statements over all checks at
-- once would not do here: above READ COMMITTED the servers lock what such a statement reads of the ledger, and
-- the gaps beside it.
--
-- Arguments  p_checks       as for zone_check_many
--            p_skip_locked  leave out the checks of buckets that somebody else holds
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_decide
drop procedure if exists zone_decide_each;
create procedure zone_decide_each(in p_checks json, in p_skip_locked boolean)
sql security definer
begin
    declare v_done           boolean default false;
    declare v_held           boolean;
    declare v_lock_wait_s    int default @@session.innodb_lock_wait_timeout;
    declare v_found          bigint;
    declare v_position       int;
    declare v_bucket         int;
    declare v_zone_id        int;
    declare v_key            varbinary(255);
    declare v_bucket_key     varchar(4000) character set utf8mb4;
    declare v_txn_id         binary(16);
    declare v_cost           bigint;
    declare v_fresh          boolean;
    declare v_recorded       boolean;
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
    -- Sorted before any row is locked.
    declare c_bucket cursor for
        select c.bucket, min(c.zone_id), min(c.bucket_key)
        from zone_batch_check c
        where c.recorded
        group by c.bucket
        order by c.bucket;
    declare c_check cursor for
        select c.position, c.zone_id, c.bucket_key, c.txn_id, c.cost, c.fresh, c.recorded
        from zone_batch_check c
        left join zone_batch_head h on h.bucket = c.bucket
        where h.bucket is null
        order by c.position;
    declare continue handler for not found set v_done = true;
    call zone_batch_read(p_checks);

    open c_bucket;
    buckets: loop
        set v_done = false;
        fetch c_bucket into v_bucket, v_zone_id, v_key;
        if v_done then
            leave buckets;
        end if;
        set v_held = false;
        hold: loop
            set v_found = null;
            if p_skip_locked then
                -- Skipping would not tell a row that is held from one that is not there. MariaDB knows no nowait in
                -- a routine, but a wait of no second.
                begin
                    declare continue handler for 3572, 1205 set v_held = true;
                    /*M! set innodb_lock_wait_timeout = 0; */
                    select b.seq
                    into v_found
                    from zone_bucket_lock b
                    where b.zone_id = v_zone_id and b.bucket_key = v_key
                    for update /*!80000 nowait */;
                    /*M! set innodb_lock_wait_timeout = v_lock_wait_s; */
                end;
            end if;
            if v_held or v_found is not null then
                leave hold;
            end if;
            -- Made first, so that no gap is locked by looking for it.
            call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4));
            select b.seq
            into v_found
            from zone_bucket_lock b
            where b.zone_id = v_zone_id and b.bucket_key = v_key
            for update;
            if v_found is not null then
                leave hold;
            end if;
        end loop;
        if v_held then
            -- Among the heads stand the buckets that are left out.
            insert into zone_batch_head (bucket, checks, zone_id, bucket_key, seq, spent_total)
            values (v_bucket, 0, v_zone_id, v_key, 0, 0);
        end if;
    end loop;
    close c_bucket;
    insert into zone_decision (position, txn_id, zone_id, bucket_key, cost)
    select c.position, c.txn_id, c.zone_id, c.bucket_key, c.cost
    from zone_batch_check c
    join zone_batch_head h on h.bucket = c.bucket;

    open c_check;
    checks: loop
        set v_done = false;
        fetch c_check into v_position, v_zone_id, v_key, v_txn_id, v_cost, v_fresh, v_recorded;
        if v_done then
            leave checks;
        end if;
        set v_bucket_key = convert(v_key using utf8mb4);
        call zone_decide(
            v_zone_id, v_bucket_key, v_txn_id, v_cost, v_fresh, v_recorded, true, null, v_id, v_zone_version,
            v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_created_at, v_replayed
        );
        insert into zone_decision (
            position, id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit,
            remaining, retry_after_us, created_at, replayed
        )
        values (
            v_position, v_id, v_txn_id, v_zone_id, v_zone_version, v_key, v_seq, v_blocked, v_reason, v_cost,
            v_zone_limit, v_remaining, v_retry_after_us, v_created_at, v_replayed
        );
    end loop;
    close c_check;
end;
