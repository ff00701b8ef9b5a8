-- zone_batch_hold: locks the buckets of a batch one after the other; not called from outside.
--
-- Those that are held stand in zone_batch_head afterwards, with seq and time of their last row, and those that are
-- only peeked at.
--
-- Arguments  p_skip_locked  leave out the buckets that somebody else holds
--            p_joined       the transaction is the caller's and may be of any isolation level
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_bucket_open
drop procedure if exists zone_batch_hold;
create procedure zone_batch_hold(in p_skip_locked boolean, in p_joined boolean)
sql security definer
begin
    declare v_done        boolean default false;
    declare v_held        boolean;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare v_found       bigint;
    declare v_last_at     datetime(6);
    declare v_bucket      int;
    declare v_zone_id     int;
    declare v_key         varbinary(255);
    declare v_recorded    boolean;
    -- Sorted before any row is locked.
    declare c_bucket cursor for
        select c.bucket, min(c.zone_id), min(c.bucket_key), max(c.recorded)
        from zone_batch_check c
        group by c.bucket
        order by c.bucket;
    declare continue handler for not found set v_done = true;

    open c_bucket;
    buckets: loop
        set v_done = false;
        fetch c_bucket into v_bucket, v_zone_id, v_key, v_recorded;
        if v_done then
            leave buckets;
        end if;
        set v_held = false;
        set v_found = null;
        set v_last_at = null;
        hold: while v_recorded do
            set v_found = null;
            if p_skip_locked then
                -- Skipping would not tell a row that is held from one that is not there. MariaDB knows no nowait in
                -- a routine, but a wait of no second.
                begin
                    declare continue handler for 3572, 1205 set v_held = true;
                    /*M! set innodb_lock_wait_timeout = 0; */
                    select b.seq, b.last_at
                    into v_found, v_last_at
                    from zone_bucket_lock b
                    where b.zone_id = v_zone_id and b.bucket_key = v_key
                    for update /*!80000 nowait */;
                    /*M! set innodb_lock_wait_timeout = v_lock_wait_s; */
                end;
            else
                if p_joined then
                    -- Made first, so that no gap is locked by looking for it.
                    call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4));
                end if;
                select b.seq, b.last_at
                into v_found, v_last_at
                from zone_bucket_lock b
                where b.zone_id = v_zone_id and b.bucket_key = v_key
                for update;
            end if;
            if v_held or v_found is not null then
                leave hold;
            end if;
            call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4));
        end while;
        if not v_held then
            insert into zone_batch_head (bucket, checks, zone_id, bucket_key, seq, last_at, spent_total, plain)
            values (v_bucket, 0, v_zone_id, v_key, coalesce(v_found, 0), v_last_at, 0, false);
        end if;
    end loop;
    close c_bucket;
end;
