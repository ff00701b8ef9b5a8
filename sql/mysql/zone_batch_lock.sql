-- zone_batch_lock: locks the buckets of a batch and reads their heads; not called from outside.
--
-- Runs under READ COMMITTED, where looking for a row that is not there locks nothing. Missing rows are made
-- before any other is locked, so that no row is waited for by a transaction that holds a later one. The rows are
-- sorted in a derived table with a limit, which the server must finish first: a join that is ordered as a whole
-- locks in the order of its input.
--
-- Arguments  p_skip_locked  leave out the buckets that somebody else holds
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends; with
--            p_skip_locked it waits for no row but a second for new ones that another transaction makes too
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) a key cannot be stored
drop procedure if exists zone_batch_lock;
create procedure zone_batch_lock(in p_skip_locked boolean)
sql security definer
begin
    declare v_skip_locked boolean default coalesce(p_skip_locked, false);
    declare v_buckets     int;
    declare v_locking     int;
    declare v_missing     int;
    declare v_held        int;
    declare v_position    int;
    declare v_zone_id     int;
    declare v_bucket_key  varbinary(255);
    declare v_bucket      int;
    declare v_seq         bigint;
    declare v_last_at     datetime(6);
    declare v_spent_total bigint;
    declare v_level       bigint;
    declare v_version     int;
    declare v_strikes     bigint;
    declare v_salt        binary(16);
    declare v_row_hash    binary(32);
    select coalesce(max(c.bucket), 0), count(distinct if(c.recorded, c.bucket, null))
    into v_buckets, v_locking
    from zone_batch_check c;
    hold: loop
        select count(*), min(if(
            z.id is null
                or convert(c.bucket_key using utf8mb4) regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]', c.position, null
        ))
        into v_missing, v_position
        from zone_batch_check c
        left join zone_bucket_lock b force index (primary) on b.zone_id = c.zone_id and b.bucket_key = c.bucket_key
        left join zone_master z force index (primary) on z.id = c.zone_id
        where c.recorded and b.zone_id is null;
        if v_position is not null then
            select c.zone_id, c.bucket_key
            into v_zone_id, v_bucket_key
            from zone_batch_check c
            where c.position = v_position;
            -- Says what is wrong.
            call zone_bucket_open(v_zone_id, convert(v_bucket_key using utf8mb4));
        end if;
        if v_missing > 0 then
            -- Of a call that waits the others too, which keeps the order; one that skips must not touch them.
            -- Picked by a statement before: MariaDB refuses to write to what was read and has changed since.
            insert into zone_batch_head (bucket, checks, zone_id, bucket_key, seq, spent_total, plain)
            select c.bucket, count(*), min(c.zone_id), min(c.bucket_key), 0, 0, false
            from zone_batch_check c
            left join zone_bucket_lock b force index (primary)
                on v_skip_locked and b.zone_id = c.zone_id and b.bucket_key = c.bucket_key
            where c.recorded and b.zone_id is null
            group by c.bucket;
            begin
                declare exit handler for 1205
                begin
                    -- Somebody makes one of them too. Then none is made, and those that are missing are left out.
                    if not v_skip_locked then
                        resignal;
                    end if;
                end;
                if v_skip_locked then
                    -- The shortest that there is; the caller sets it back.
                    set innodb_lock_wait_timeout = 1;
                end if;
                insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash)
                select s.zone_id, s.bucket_key, s.salt,
                    unhex(sha2(concat(s.salt, unhex(lpad(hex(s.zone_id), 8, '0')), s.bucket_key), 256))
                from (
                    select h.zone_id, h.bucket_key, random_bytes(16) as salt
                    from zone_batch_head h
                    order by h.bucket
                    limit 18446744073709551615
                ) s
                on duplicate key update seq = zone_bucket_lock.seq;
                -- Those that have a ledger go on where that ends.
                select min(h.bucket)
                into v_bucket
                from zone_batch_head h
                join zone_bucket_removed r on r.zone_id = h.zone_id;
                while v_bucket is not null do
                    select h.zone_id, h.bucket_key
                    into v_zone_id, v_bucket_key
                    from zone_batch_head h
                    where h.bucket = v_bucket;
                    call zone_bucket_back(v_zone_id, v_bucket_key);
                    select min(h.bucket)
                    into v_bucket
                    from zone_batch_head h
                    join zone_bucket_removed r on r.zone_id = h.zone_id
                    where h.bucket > v_bucket;
                end while;
            end;
            delete from zone_batch_head;
        end if;
        if v_skip_locked then
            insert into zone_batch_head (
                bucket, checks, zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes,
                banned_until, carried_at, plain, row_hash
            )
            select s.bucket, s.checks, s.zone_id, s.bucket_key, b.seq, b.last_at, b.spent_total, b.level,
                b.zone_version, b.strikes, b.banned_until, b.carried_at,
                s.plain and not b.holding and b.override_seq is null, b.row_hash
            from (
                select c.bucket, count(*) as checks, min(c.zone_id) as zone_id, min(c.bucket_key) as bucket_key,
                    min(c.member is null and c.ttl_us is null) as plain
                from zone_batch_check c
                group by c.bucket
                having max(c.recorded)
                order by c.bucket
                limit 18446744073709551615
            ) s
            straight_join zone_bucket_lock b force index (primary)
                on b.zone_id = s.zone_id and b.bucket_key = s.bucket_key
            for update skip locked;
            leave hold;
        end if;
        insert into zone_batch_head (
            bucket, checks, zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes, banned_until,
            carried_at, plain, row_hash
        )
        select s.bucket, s.checks, s.zone_id, s.bucket_key, b.seq, b.last_at, b.spent_total, b.level,
            b.zone_version, b.strikes, b.banned_until, b.carried_at,
            s.plain and not b.holding and b.override_seq is null, b.row_hash
        from (
            select c.bucket, count(*) as checks, min(c.zone_id) as zone_id, min(c.bucket_key) as bucket_key,
                min(c.member is null and c.ttl_us is null) as plain
            from zone_batch_check c
            group by c.bucket
            having max(c.recorded)
            order by c.bucket
            limit 18446744073709551615
        ) s
        straight_join zone_bucket_lock b force index (primary)
            on b.zone_id = s.zone_id and b.bucket_key = s.bucket_key
        for update;
        select count(*)
        into v_held
        from zone_batch_head h;
        if v_held = v_locking then
            leave hold;
        end if;
        -- Somebody removed a row while this waited for it.
        delete from zone_batch_head;
    end loop;
    if v_locking < v_buckets then
        -- Peeks only look.
        insert into zone_batch_head (
            bucket, checks, zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes, banned_until,
            carried_at, plain, row_hash
        )
        select s.bucket, s.checks, s.zone_id, s.bucket_key, coalesce(b.seq, 0), b.last_at, coalesce(b.spent_total, 0),
            b.level, b.zone_version, b.strikes, b.banned_until, b.carried_at,
            s.plain and not coalesce(b.holding, false) and b.override_seq is null, b.row_hash
        from (
            select c.bucket, count(*) as checks, min(c.zone_id) as zone_id, min(c.bucket_key) as bucket_key,
                min(c.member is null and c.ttl_us is null) as plain
            from zone_batch_check c
            group by c.bucket
            having not max(c.recorded)
        ) s
        left join zone_bucket_lock b force index (primary) on b.zone_id = s.zone_id and b.bucket_key = s.bucket_key;
        select min(h.bucket)
        into v_bucket
        from zone_batch_head h
        join zone_bucket_removed r on r.zone_id = h.zone_id
        where h.row_hash is null;
        while v_bucket is not null do
            select h.zone_id, h.bucket_key
            into v_zone_id, v_bucket_key
            from zone_batch_head h
            where h.bucket = v_bucket;
            call zone_head_back(
                v_zone_id, v_bucket_key, false, v_seq, v_last_at, v_spent_total, v_level, v_version, v_strikes, v_salt,
                v_row_hash
            );
            if v_seq > 0 then
                update zone_batch_head h
                set h.seq = v_seq,
                    h.last_at = v_last_at,
                    h.spent_total = v_spent_total,
                    h.level = v_level,
                    h.zone_version = v_version,
                    h.strikes = v_strikes
                where h.bucket = v_bucket;
            end if;
            select min(h.bucket)
            into v_bucket
            from zone_batch_head h
            join zone_bucket_removed r on r.zone_id = h.zone_id
            where h.row_hash is null and h.bucket > v_bucket;
        end while;
    end if;
end;
