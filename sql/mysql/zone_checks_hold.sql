-- zone_checks_hold: locks the buckets of a call, one after the other; not called from outside.
--
-- Arguments  p_checks       as zone_checks_read tells them; those that leave no row only look
--            p_skip_locked  leave out the buckets that somebody else holds
--            p_joined       the transaction is the caller's and may be of any isolation level
--            o_left_out     those that were left out, each as its zone, a colon and the key in hex, between commas; null when
--                it was killed
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends; with p_skip_locked
--            it waits for no row but a second for a new one that another transaction makes too
-- Errors     those of zone_bucket_open; TG011 (31011) a bucket was moved to another database
drop procedure if exists zone_checks_hold;
create procedure zone_checks_hold(
    in  p_checks      json,
    in  p_skip_locked boolean,
    in  p_joined      boolean,
    out o_left_out    longtext character set ascii
)
sql security definer
begin
    declare v_done        boolean default false;
    declare v_held        boolean;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare v_found       bigint;
    declare v_moved_to    varchar(64) character set utf8mb4;
    declare v_zone_id     int;
    declare v_key         varbinary(255);
    declare v_left_out    longtext character set ascii default '';
    -- Sorted before any row is locked.
    declare c_bucket cursor for
        select b.zone_id, b.bucket_key
        from (
            select distinct j.zone_id, left(cast(j.key_text as binary), 255) as bucket_key
            from json_table(p_checks, '$[*]' columns (
                zone_id  int path '$[0]',
                key_text varchar(255) character set utf8mb4 path '$[1]',
                recorded int path '$[4]'
            )) j
            where j.recorded
        ) b
        order by b.zone_id, b.bucket_key;
    declare continue handler for not found set v_done = true;

    open c_bucket;
    buckets: loop
        set v_done = false;
        fetch c_bucket into v_zone_id, v_key;
        if v_done then
            leave buckets;
        end if;
        set v_held = false;
        set v_found = null;
        hold: loop
            if p_skip_locked then
                -- Skipping would not tell a row that is held from one that is not there. MariaDB knows no nowait in
                -- a routine, but a wait of no second.
                begin
                    declare continue handler for 3572, 1205 set v_held = true;
                    /*M! set innodb_lock_wait_timeout = 0; */
                    select b.seq, b.moved_to
                    into v_found, v_moved_to
                    from zone_bucket_lock b
                    where b.zone_id = v_zone_id and b.bucket_key = v_key
                    for update /*!80000 nowait */;
                    set innodb_lock_wait_timeout = v_lock_wait_s;
                end;
            else
                if p_joined then
                    -- Made first, so that no gap is locked by looking for it.
                    call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4), false);
                end if;
                select b.seq, b.moved_to
                into v_found, v_moved_to
                from zone_bucket_lock b
                where b.zone_id = v_zone_id and b.bucket_key = v_key
                for update;
            end if;
            if v_moved_to is not null then
                call zone_error('elsewhere', v_moved_to, null, null);
            end if;
            if v_held or v_found is not null then
                leave hold;
            end if;
            if p_skip_locked then
                -- Somebody makes it too. The shortest wait that there is.
                begin
                    declare continue handler for 1205 set v_held = true;
                    set innodb_lock_wait_timeout = 1;
                    call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4), false);
                    set innodb_lock_wait_timeout = v_lock_wait_s;
                end;
            else
                call zone_bucket_open(v_zone_id, convert(v_key using utf8mb4), false);
            end if;
        end loop;
        if v_held then
            set v_left_out = concat(v_left_out, if(v_left_out = '', '', ','), v_zone_id, ':', hex(v_key));
        end if;
    end loop;
    close c_bucket;
    set o_left_out = v_left_out;
end;
