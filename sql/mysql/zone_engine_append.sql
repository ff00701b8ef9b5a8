-- zone_engine_append: rows that a process has decided by itself go into the ledger, where their buckets are still where
-- they were derived from.
--
-- Compare and swap: a head moves from the seq and the hash that the process knew, by the version of the zone in force,
-- or stays where it is. The database looks at what it can see at little cost: that rows follow each other and their head,
-- totals, times, kinds and reasons. The rest is derived again by tallygate audit verify.
--
-- A caller whose statement is killed must close its session, since what was appended by then would be committed by a commit; or, without
-- p_own, return to the savepoint tallygate_append.
--
-- Arguments  p_heads        the buckets, in the byte order of zone and key, each an array. Times are microseconds since
--                           1970, bytes in hex, truth 0 or 1:
--                           [zone, new; where it was: seq, time, total; where it comes to: seq, time, total, level,
--                           strikes, version of the zone; besides, parts; key, hash where it was, hash, salt of one that
--                           has no row in the ledger; rows], where new is 1 for a bucket that is not in the database. Everything
--                           that has changed besides, in an array of none or one: [banned until, strikes at the ban, carried
--                           amount, time, total and seq, override, bans, holding, 1 where what has ended is of no more
--                           use, what a settlement taught of shapes]. A part is what of a charge ends by itself: [seq,
--                           amount, end, member, and when it was charged, where that is a row of before, of which something
--                           is given back]. A row of the ledger: [1 where its transaction may have been decided before, seq,
--                           checks, blocked, critical, cost, spent, total, remaining, limit, wait, delay, level, strikes, end,
--                           kind, reason, member, transaction, hash, null in the last: it is the head's; band, target]. A long
--                           value comes last, since MariaDB reads from the front for each value
--            p_skip_locked  leave out the buckets that have moved on, and those that another transaction holds instead of
--                           waiting for them; else all buckets move, or none
--            p_lock_wait_s  as in zone_check
--            p_own          as in zone_engine_append_one
-- Result     one row: now_us, the database's clock when the call began; stale, the places, from 1, of the buckets that
--            were left out, as an array, null where none was
-- Locks      the buckets' rows, and, shared, the zones of new ones, until the transaction ends
-- Errors     TG003 (31003) what does not follow, or a key that cannot be stored; TG006 (31006) without p_own no
--            transaction is open; TG009 (31009) nothing was appended: a zone has another version, or the time is not
--            now; TG010 (31010) a bucket has moved on; TG011 (31011) the key of a new bucket belongs to another
--            database; 1205 the lock was not had in time; 1213 two callers made the same buckets; 1568 with p_own a transaction is open; it stays as it is
drop procedure if exists zone_engine_append;
create procedure zone_engine_append(
    in p_heads       json,
    in p_skip_locked boolean,
    in p_lock_wait_s int,
    in p_own         boolean
)
sql security definer
begin
    declare v_epoch        datetime default timestamp'1970-01-01 00:00:00';
    declare v_last_us      bigint default 253402300799999999;
    declare v_now_us       bigint;
    declare v_heads        int;
    declare v_unordered    int;
    declare v_late         int;
    declare v_wrong        int;
    declare v_wrong_key    int;
    declare v_new          int;
    declare v_named        boolean;
    -- Not by columns of the tables below: MariaDB would look for what is not there in all that follows, for each row.
    declare v_besides      boolean default coalesce(json_contains_path(p_heads, 'one', '$[*][11][0]'), false);
    declare v_parts        boolean default coalesce(json_contains_path(p_heads, 'one', '$[*][12][0]'), false);
    declare v_ended        boolean default coalesce(json_contains(json_extract(p_heads, '$[*][11][0][9]'), '1'), false);
    declare v_runs         int;
    declare v_zones        json;
    declare v_held         json;
    declare v_stale        json;
    declare v_more         json;
    declare v_leases       boolean default false;
    declare v_ends         boolean default false;
    declare v_lock_wait_s  int default @@session.innodb_lock_wait_timeout;
    declare v_safe_updates boolean default @@session.sql_safe_updates;
    if p_own then
        -- Fails with 1568 inside an open transaction, and leaves that as it is.
        set transaction isolation level read committed;
    else
        call zone_transaction_require();
        savepoint tallygate_append;
    end if;
    begin
        declare exit handler for sqlexception, 1265
        begin
            if p_own then
                rollback and no chain no release;
            end if;
            set innodb_lock_wait_timeout = v_lock_wait_s;
            set sql_safe_updates = v_safe_updates;
            resignal;
        end;
        set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
        set sql_safe_updates = false;
        -- Before the clock: a clock of tests is a row, and to read it would use up the level.
        if p_own then
            start transaction;
        end if;
        call zone_clock(v_now_us);

        -- 1. Do the rows follow each other, and do the heads follow them?
        select max(s.place), sum(s.is_unordered), sum(s.is_late), max(if(s.is_wrong, s.place, null)),
            max(if(s.is_wrong_key, s.place, null)), sum(s.is_new and s.is_first),
            coalesce(max(s.named and s.seq > 1), false), sum(s.is_run), coalesce(max(s.kind = 'lease'), false),
            coalesce(max(s.kind in ('refund', 'settle', 'cancel', 'release')), false),
            json_array(json_array(min(s.zone_id), min(s.zone_version)))
        into v_heads, v_unordered, v_late, v_wrong, v_wrong_key, v_new, v_named, v_runs, v_leases, v_ends, v_zones
        from (
            select r.place, r.zone_id, r.zone_version, r.is_new, r.is_first, r.named, r.seq, r.kind,
                not (r.zone_id <=> r.last_zone_id and r.zone_version <=> r.last_zone_version) as is_run,
                -- Each once, in order.
                r.is_first and r.place > 1
                    and (
                        r.zone_id > r.last_zone_id
                        or (r.zone_id = r.last_zone_id and cast(r.key_text as binary) > cast(r.last_key_text as binary))
                    ) is not true as is_unordered,
                -- The time is the database's, of a moment ago; or that of the bucket, where the clock is behind that.
                (
                    r.at_us between v_now_us - 1000000 and v_now_us
                    or (r.at_us = r.was_us and r.was_us > v_now_us)
                ) is not true as is_late,
                r.is_new and (
                    length(r.key_text) between 1 and 255 and left(cast(r.key_text as binary), 7) <> 'erased:'
                    and r.key_text not regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]'
                ) is not true as is_wrong_key,
                (
                    r.is_new in (0, 1)
                    and r.kind in (
                        'check', 'reserve', 'coalesced', 'ban', 'lease', 'local', 'refund', 'settle', 'cancel', 'release',
                        'offer', 'take', 'extend', 'done', 'requeue', 'evict'
                    )
                    and (
                        r.reason in ('over_limit', 'exceeds_limit', 'banned', 'held_back')
                        or (not r.blocked and r.reason in ('within_limit', 'soft', 'off', 'recorded'))
                    )
                    and (r.reason = 'recorded') = (
                        r.kind in ('ban', 'refund', 'settle', 'cancel', 'release', 'extend', 'done', 'requeue', 'evict')
                    )
                    and (r.kind <> 'ban' or (not r.is_first and r.txn = r.last_txn and r.last_kind <> 'ban'))
                    and (r.checks = 1 or r.kind in ('coalesced', 'lease', 'take', 'extend', 'done', 'requeue'))
                    and (r.band is null) = (r.kind not in ('lease', 'offer', 'take', 'extend', 'done', 'requeue', 'evict'))
                    and r.cost between 0 and 1099511627776
                    and length(unhex(if(r.next_place <=> r.place, r.hash, r.head_hash))) = 32
                    and length(unhex(r.txn)) = 16
                    and r.txn <> repeat('0', 32)
                    and r.named in (0, 1)
                    and r.seq = if(r.is_first, r.was_seq, r.last_seq) + 1
                    and (r.was_seq = 0 or not r.is_new)
                    and (r.was_seq = 0) = (r.was_us is null)
                    and r.total = if(r.is_first, r.was_total, r.last_total) + r.spent
                    and r.strikes >= if(r.is_first, 0, r.last_strikes)
                    and r.at_us >= coalesce(r.was_us, 0)
                    -- The last one says what the head says.
                    and (
                        r.next_place = r.place
                        or (
                            r.seq = r.head_seq and r.total = r.head_total and r.level <=> r.head_level
                            and r.strikes = r.head_strikes and r.hash is null
                        )
                    )
                ) is not true as is_wrong
            from (
                select j.place, j.zone_id, j.key_text, j.is_new, j.was_seq, j.was_us, j.was_total, j.head_seq, j.at_us,
                    j.head_total, j.head_level, j.head_strikes, j.zone_version, j.head_hash, j.txn, j.named, j.seq, j.kind, j.checks, j.blocked, j.reason, j.cost, j.spent, j.total, j.level,
                    j.strikes, j.band, j.hash,
                    not (lag(j.place) over w <=> j.place) as is_first, lead(j.place) over w as next_place,
                    lag(j.zone_id) over w as last_zone_id, lag(j.zone_version) over w as last_zone_version,
                    lag(j.key_text) over w as last_key_text,
                    lag(j.seq) over w as last_seq, lag(j.txn) over w as last_txn, lag(j.kind) over w as last_kind,
                    lag(j.total) over w as last_total, lag(j.strikes) over w as last_strikes
                from json_table(p_heads, '$[*]' columns (
                    place        for ordinality,
                    zone_id      int path '$[0]',
                    is_new       int path '$[1]',
                    was_seq      bigint path '$[2]',
                    was_us       bigint path '$[3]',
                    was_total    bigint path '$[4]',
                    head_seq     bigint path '$[5]',
                    at_us        bigint path '$[6]',
                    head_total   bigint path '$[7]',
                    head_level   bigint path '$[8]',
                    head_strikes bigint path '$[9]',
                    zone_version int path '$[10]',
                    key_text     varchar(255) character set utf8mb4 path '$[13]',
                    head_hash    varchar(64) character set ascii path '$[15]',
                    nested path '$[17][*]' columns (
                        nth     for ordinality,
                        named   int path '$[0]',
                        seq     bigint path '$[1]',
                        checks  int path '$[2]',
                        blocked boolean path '$[3]',
                        cost    bigint path '$[5]',
                        spent   bigint path '$[6]',
                        total   bigint path '$[7]',
                        level   bigint path '$[12]',
                        strikes bigint path '$[13]',
                        band    int path '$[20]',
                        kind    varchar(20) character set ascii path '$[15]',
                        reason  varchar(20) character set ascii path '$[16]',
                        txn     varchar(32) character set ascii path '$[18]',
                        hash    varchar(64) character set ascii path '$[19]'
                    )
                )) j
                window w as (order by j.place, j.nth)
            ) r
        ) s;
        if v_unordered is null or v_unordered > 0 then
            call zone_error('heads', v_heads, null, null);
        elseif v_wrong_key is not null then
            call zone_error(
                'key', length(json_unquote(json_extract(p_heads, concat('$[', v_wrong_key - 1, '][13]')))), null, null
            );
        elseif v_wrong is not null then
            call zone_error(
                'append', json_extract(p_heads, concat('$[', v_wrong - 1, '][0]')),
                json_extract(p_heads, concat('$[', v_wrong - 1, '][5]')), null
            );
        elseif v_late > 0 and not exists (
            -- Or it is that of a queue's items, where the clock was set back behind what they have become by themselves.
            select 1
            from json_table(p_heads, '$[0]' columns (
                zone_id  int path '$[0]',
                at_us    bigint path '$[6]',
                key_text varchar(255) character set utf8mb4 path '$[13]'
            )) j
            straight_join zone_queue q force index (primary)
                on q.zone_id = j.zone_id and q.bucket_key = cast(j.key_text as binary)
            where v_heads = 1 and q.settled_at = date_add(v_epoch, interval j.at_us microsecond)
        ) then
            call zone_error('stale', null, null, null);
        end if;
        if v_besides then
            -- It was carried, banned and excepted by then. Not by constraints: no handler of MariaDB sees one that an update of
            -- several tables violates, and the transaction stays open.
            select max(j.place)
            into v_wrong
            from json_table(p_heads, '$[*]' columns (
                place         for ordinality,
                seq           bigint path '$[5]',
                total         bigint path '$[7]',
                strikes       bigint path '$[9]',
                ban_strikes   bigint path '$[11][0][1]',
                carried       bigint path '$[11][0][2]',
                carried_us    bigint path '$[11][0][3]',
                carried_total bigint path '$[11][0][4]',
                carried_seq   bigint path '$[11][0][5]',
                override_seq  bigint path '$[11][0][6]',
                bans          int path '$[11][0][7]'
            )) j
            where j.bans is not null and (
                j.bans >= 0
                and j.ban_strikes between 0 and j.strikes
                and (
                    coalesce(j.carried, j.carried_us, j.carried_total, j.carried_seq) is null
                    or (
                        j.carried between 0 and 4398046511104
                        and j.carried_us is not null
                        and j.carried_total between 0 and j.total
                        and j.carried_seq between 0 and j.seq
                    )
                )
                and coalesce(j.override_seq, 1) between 1 and j.seq
            ) is not true;
        end if;
        if v_parts and v_wrong is null then
            -- No more ends than was charged.
            select max(if(p.is_wrong or p.amount > p.spent, p.place, null))
            into v_wrong
            from (
                select j.place, max(j.total - j.was_total) as spent, sum(if(j.seq > j.was_seq, j.amount, 0)) as amount,
                    max((
                        (j.seq > j.was_seq and j.seq <= j.head_seq and j.charged_us is null)
                        -- The amount that is given back is of an earlier row.
                        or (v_ends and j.seq <= j.was_seq and j.amount <= (
                            select t.spent
                            from zone_txn t force index (zone_txn_bucket_uq)
                            where t.zone_id = j.zone_id and t.bucket_key = cast(j.key_text as binary)
                                and t.created_at = date_add(v_epoch, interval j.charged_us microsecond) and t.seq = j.seq
                                and t.sealed
                            lock in share mode
                        ))
                    ) is not true) as is_wrong
                from json_table(p_heads, '$[*]' columns (
                    place     for ordinality,
                    zone_id   int path '$[0]',
                    was_seq   bigint path '$[2]',
                    was_total bigint path '$[4]',
                    head_seq  bigint path '$[5]',
                    total     bigint path '$[7]',
                    key_text  varchar(255) character set utf8mb4 path '$[13]',
                    nested path '$[12][*]' columns (
                        nth        for ordinality,
                        seq        bigint path '$[0]',
                        amount     bigint path '$[1]',
                        charged_us bigint path '$[4]'
                    )
                )) j
                where j.nth is not null
                group by j.place
            ) p;
        end if;
        if v_wrong is not null then
            call zone_error(
                'append', json_extract(p_heads, concat('$[', v_wrong - 1, '][0]')),
                json_extract(p_heads, concat('$[', v_wrong - 1, '][5]')), null
            );
        end if;
        -- The zones, each with the version that decided: there is one as a rule.
        if v_runs > 1 then
            select json_arrayagg(json_array(d.zone_id, d.zone_version))
            into v_zones
            from (
                select distinct j.zone_id, j.zone_version
                from json_table(p_heads, '$[*]' columns (
                    zone_id      int path '$[0]',
                    zone_version int path '$[10]'
                )) j
            ) d;
        end if;

        -- 2. A process that did not look whether a transaction was decided before learns it here. One that is decided from now on moves
        --    the head.
        if v_named then
            select json_arrayagg(j.place)
            into v_stale
            from json_table(p_heads, '$[*]' columns (
                place    for ordinality,
                zone_id  int path '$[0]',
                key_text varchar(255) character set utf8mb4 path '$[13]',
                nested path '$[17][*]' columns (
                    named int path '$[0]',
                    seq   bigint path '$[1]',
                    txn   varchar(32) character set ascii path '$[18]'
                )
            )) j
            straight_join zone_txn t force index (zone_txn_bucket_txn)
                on t.zone_id = j.zone_id and t.bucket_key = cast(j.key_text as binary) and t.txn_id = unhex(j.txn)
            where j.named and j.seq > 1 and t.sealed and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'lease', 'local', 'offer');
            if v_stale is not null and not p_skip_locked then
                call zone_error('moved', null, null, null);
            end if;
        end if;

        -- 3. Move the heads that are where they were. Which of them are free is found out before: the derived table ends before
        --    the join begins, which then locks in its order.
        if p_skip_locked and v_heads > v_new then
            select json_arrayagg(h.place)
            into v_held
            from (
                select j.place, j.zone_id, left(cast(j.key_text as binary), 255) as bucket_key, j.was_seq,
                    unhex(j.was_hash) as was_hash, date_add(v_epoch, interval j.was_us microsecond) as was_at, j.was_total
                from json_table(p_heads, '$[*]' columns (
                    place     for ordinality,
                    zone_id   int path '$[0]',
                    is_new    int path '$[1]',
                    was_seq   bigint path '$[2]',
                    was_us    bigint path '$[3]',
                    was_total bigint path '$[4]',
                    key_text  varchar(255) character set utf8mb4 path '$[13]',
                    was_hash  varchar(64) character set ascii path '$[14]'
                )) j
                where not j.is_new
                order by j.place
                limit 18446744073709551615
            ) h
            straight_join zone_bucket_lock b force index (primary)
                on b.zone_id = h.zone_id and b.bucket_key = h.bucket_key
            where b.seq = h.was_seq and b.row_hash = h.was_hash and b.last_at <=> h.was_at and b.spent_total = h.was_total
            for update skip locked;
            if coalesce(json_length(v_held), 0) < v_heads - v_new then
                select json_arrayagg(j.place)
                into v_more
                from json_table(p_heads, '$[*]' columns (
                    place  for ordinality,
                    is_new int path '$[1]'
                )) j
                where not j.is_new and not coalesce(json_contains(v_held, cast(j.place as char)), false);
                set v_stale = json_merge_preserve(coalesce(v_stale, json_array()), v_more);
            end if;
        end if;
        if v_heads > v_new then
            update json_table(p_heads, '$[*]' columns (
                place        for ordinality,
                zone_id      int path '$[0]',
                is_new       int path '$[1]',
                was_seq      bigint path '$[2]',
                was_us       bigint path '$[3]',
                was_total    bigint path '$[4]',
                seq          bigint path '$[5]',
                at_us        bigint path '$[6]',
                spent_total  bigint path '$[7]',
                level        bigint path '$[8]',
                strikes      bigint path '$[9]',
                zone_version int path '$[10]',
                key_text     varchar(255) character set utf8mb4 path '$[13]',
                was_hash     varchar(64) character set ascii path '$[14]',
                row_hash     varchar(64) character set ascii path '$[15]'
            )) j
            straight_join zone_bucket_lock b force index (primary)
                on b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
            set b.seq = j.seq,
                b.last_at = date_add(v_epoch, interval j.at_us microsecond),
                b.spent_total = j.spent_total,
                b.level = j.level,
                b.strikes = j.strikes,
                b.zone_version = j.zone_version,
                b.row_hash = unhex(j.row_hash)
            where not j.is_new and b.seq = j.was_seq and b.row_hash = unhex(j.was_hash)
                and b.last_at <=> date_add(v_epoch, interval j.was_us microsecond) and b.spent_total = j.was_total
                and not coalesce(json_contains(v_stale, cast(j.place as char)), false);
            -- A client may count changed rows or found ones: each of them changes.
            if row_count() < v_heads - v_new and not p_skip_locked then
                call zone_error('moved', null, null, null);
            end if;
        end if;
        if v_new > 0 then
            -- One that has a ledger and no row is not new.
            set v_more = null;
            if exists (
                select 1
                from json_table(v_zones, '$[*]' columns (zone_id int path '$[0]')) z
                straight_join zone_bucket_removed r force index (primary) on r.zone_id = z.zone_id
            ) then
                select json_arrayagg(j.place)
                into v_more
                from json_table(p_heads, '$[*]' columns (
                    place    for ordinality,
                    zone_id  int path '$[0]',
                    is_new   int path '$[1]',
                    key_text varchar(255) character set utf8mb4 path '$[13]'
                )) j
                where j.is_new and (
                    exists (
                        select 1
                        from zone_txn t force index (zone_txn_bucket_uq)
                        where t.zone_id = j.zone_id and t.bucket_key = cast(j.key_text as binary)
                    )
                    or exists (
                        select 1
                        from zone_txn_dropped d
                        where d.zone_id = j.zone_id and d.bucket_key = cast(j.key_text as binary)
                    )
                );
            end if;
            if exists (select 1 from tallygate_shard) then
                begin
                    declare v_done boolean default false;
                    declare v_key  varbinary(255);
                    declare v_home varchar(63) character set ascii;
                    declare c_new cursor for
                        select left(cast(j.key_text as binary), 255)
                        from json_table(p_heads, '$[*]' columns (
                            place    for ordinality,
                            zone_id  int path '$[0]',
                            is_new   int path '$[1]',
                            key_text varchar(255) character set utf8mb4 path '$[13]'
                        )) j
                        where j.is_new and not coalesce(json_contains(v_more, cast(j.place as char)), false)
                            and not exists (
                                select 1
                                from zone_bucket_lock b force index (primary)
                                where b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
                            );
                    declare continue handler for not found set v_done = true;
                    open c_new;
                    begun: loop
                        fetch c_new into v_key;
                        if v_done then
                            leave begun;
                        end if;
                        call zone_bucket_home(v_key, false, v_home);
                        if v_home is not null then
                            call zone_error('home', v_home, null, null);
                        end if;
                    end loop;
                    close c_new;
                end;
            end if;
            begin
                declare exit handler for 1205
                begin
                    -- Somebody makes one of them too. Then none is made here.
                    if not p_skip_locked then
                        resignal;
                    end if;
                end;
                if p_skip_locked then
                    -- The shortest that there is.
                    set innodb_lock_wait_timeout = 1;
                end if;
                insert into zone_bucket_lock (
                    zone_id, bucket_key, seq, last_at, spent_total, level, strikes, zone_version, salt, row_hash
                )
                select h.zone_id, h.bucket_key, h.seq, h.last_at, h.spent_total, h.level, h.strikes, h.zone_version, h.salt,
                    h.row_hash
                from (
                    select j.zone_id, left(cast(j.key_text as binary), 255) as bucket_key, j.seq,
                        date_add(v_epoch, interval j.at_us microsecond) as last_at, j.spent_total, j.level, j.strikes,
                        j.zone_version, unhex(j.salt) as salt, unhex(j.row_hash) as row_hash
                    from json_table(p_heads, '$[*]' columns (
                        place        for ordinality,
                        zone_id      int path '$[0]',
                        is_new       int path '$[1]',
                        seq          bigint path '$[5]',
                        at_us        bigint path '$[6]',
                        spent_total  bigint path '$[7]',
                        level        bigint path '$[8]',
                        strikes      bigint path '$[9]',
                        zone_version int path '$[10]',
                        key_text     varchar(255) character set utf8mb4 path '$[13]',
                        row_hash     varchar(64) character set ascii path '$[15]',
                        salt         varchar(32) character set ascii path '$[16]'
                    )) j
                    where j.is_new and not coalesce(json_contains(v_more, cast(j.place as char)), false)
                    order by j.place
                    limit 18446744073709551615
                ) h
                on duplicate key update seq = zone_bucket_lock.seq;
            end;
            set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
            -- Those that stand there now with another end of their chain are somebody else's.
            select json_arrayagg(j.place)
            into v_more
            from json_table(p_heads, '$[*]' columns (
                place    for ordinality,
                zone_id  int path '$[0]',
                is_new   int path '$[1]',
                key_text varchar(255) character set utf8mb4 path '$[13]',
                row_hash varchar(64) character set ascii path '$[15]'
            )) j
            left join zone_bucket_lock b force index (primary)
                on b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
            where j.is_new and not b.row_hash <=> unhex(j.row_hash);
            if v_more is not null then
                set v_stale = json_merge_preserve(coalesce(v_stale, json_array()), v_more);
            end if;
        end if;
        if not p_skip_locked and v_stale is not null then
            call zone_error('moved', null, null, null);
        end if;

        if v_besides then
            update json_table(p_heads, '$[*]' columns (
                place         for ordinality,
                zone_id       int path '$[0]',
                banned_us     bigint path '$[11][0][0]',
                ban_strikes   bigint path '$[11][0][1]',
                carried       bigint path '$[11][0][2]',
                carried_us    bigint path '$[11][0][3]',
                carried_total bigint path '$[11][0][4]',
                carried_seq   bigint path '$[11][0][5]',
                override_seq  bigint path '$[11][0][6]',
                bans          int path '$[11][0][7]',
                holding       boolean path '$[11][0][8]',
                shapes        text character set utf8mb4 path '$[11][0][10]',
                key_text      varchar(255) character set utf8mb4 path '$[13]'
            )) j
            straight_join zone_bucket_lock b force index (primary)
                on b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
            set b.banned_until = date_add(v_epoch, interval least(j.banned_us, v_last_us) microsecond),
                b.ban_strikes = j.ban_strikes,
                b.carried = j.carried,
                b.carried_at = date_add(v_epoch, interval j.carried_us microsecond),
                b.carried_total = j.carried_total,
                b.carried_seq = j.carried_seq,
                b.override_seq = j.override_seq,
                b.bans = j.bans,
                b.holding = j.holding,
                b.shapes = coalesce(j.shapes, b.shapes)
            where j.bans is not null and not coalesce(json_contains(v_stale, cast(j.place as char)), false);
        end if;

        -- 4. Policies, by a statement that began after the locks. A zone without a row of the ledger may be removed.
        if v_new > 0 then
            select count(*)
            into v_late
            from (
                select distinct j.zone_id, j.zone_version
                from json_table(v_zones, '$[*]' columns (zone_id int path '$[0]', zone_version int path '$[1]')) j
            ) h
            left join zone_master z force index (primary) on z.id = h.zone_id
            where not z.version <=> h.zone_version
            lock in share mode;
        else
            select count(*)
            into v_late
            from (
                select distinct j.zone_id, j.zone_version
                from json_table(v_zones, '$[*]' columns (zone_id int path '$[0]', zone_version int path '$[1]')) j
            ) h
            left join zone_master z force index (primary) on z.id = h.zone_id
            -- As in zone_engine_append_one.
            left join zone_version v force index (primary)
                on not p_own and v.zone_id = h.zone_id and v.version = h.zone_version + 1
                    and v.changed_at >= date_add(v_epoch, interval json_extract(p_heads, '$[0][6]') microsecond)
            where not z.version <=> h.zone_version and v.version is null;
        end if;
        if v_late > 0 then
            call zone_error('stale', null, null, null);
        end if;

        -- 5. Append. Rows number themselves. A number that the session has set would be taken, and from the largest on there
        --    is none.
        if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
            call zone_error('insert id', @@session.insert_id, null, null);
        end if;
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, band, cost, spent,
            spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at, ends_at,
            member, salt, row_hash
        )
        select unhex(j.txn), j.zone_id, j.zone_version, cast(j.key_text as binary), j.seq, j.kind, j.checks, j.blocked,
            j.reason, j.critical, j.band, j.cost, j.spent, j.spent_total, j.remaining, j.zone_limit, j.retry_after_us,
            j.delay_us, j.level, j.strikes, date_add(v_epoch, interval j.target_us microsecond),
            date_add(v_epoch, interval j.at_us microsecond),
            date_add(v_epoch, interval if(j.seq = j.was_seq + 1, j.was_us, j.at_us) microsecond),
            date_add(v_epoch, interval least(j.ends_us, v_last_us) microsecond), cast(j.member as binary),
            if(j.seq = 1, unhex(j.salt), null), unhex(coalesce(j.row_hash, j.head_hash))
        from json_table(p_heads, '$[*]' columns (
            place        for ordinality,
            zone_id      int path '$[0]',
            was_seq      bigint path '$[2]',
            was_us       bigint path '$[3]',
            at_us        bigint path '$[6]',
            zone_version int path '$[10]',
            key_text     varchar(255) character set utf8mb4 path '$[13]',
            head_hash    varchar(64) character set ascii path '$[15]',
            salt         varchar(32) character set ascii path '$[16]',
            nested path '$[17][*]' columns (
                seq            bigint path '$[1]',
                checks         int path '$[2]',
                blocked        boolean path '$[3]',
                critical       boolean path '$[4]',
                cost           bigint path '$[5]',
                spent          bigint path '$[6]',
                spent_total    bigint path '$[7]',
                remaining      bigint path '$[8]',
                zone_limit     bigint path '$[9]',
                retry_after_us bigint path '$[10]',
                delay_us       bigint path '$[11]',
                level          bigint path '$[12]',
                strikes        bigint path '$[13]',
                ends_us        bigint path '$[14]',
                kind           varchar(20) character set ascii path '$[15]',
                reason         varchar(20) character set ascii path '$[16]',
                member         varchar(255) character set utf8mb4 path '$[17]',
                txn            varchar(32) character set ascii path '$[18]',
                row_hash       varchar(64) character set ascii path '$[19]',
                band           int path '$[20]',
                target_us      bigint path '$[21]'
            )
        )) j
        where not coalesce(json_contains(v_stale, cast(j.place as char)), false);
        -- MySQL takes 0 too, and does not tell it beforehand.
        if last_insert_id() = 0 and json_length(coalesce(v_stale, json_array())) < v_heads then
            call zone_error('insert id', 0, null, null);
        end if;
        if v_leases then
            -- A lease takes the place of the one that its client had.
            delete d
            from json_table(p_heads, '$[*]' columns (
                place    for ordinality,
                zone_id  int path '$[0]',
                key_text varchar(255) character set utf8mb4 path '$[13]',
                nested path '$[17][*]' columns (
                    seq    bigint path '$[1]',
                    kind   varchar(20) character set ascii path '$[15]',
                    member varchar(255) character set utf8mb4 path '$[17]'
                )
            )) j
            straight_join zone_hold d force index (primary)
                on d.zone_id = j.zone_id and d.bucket_key = cast(j.key_text as binary)
            where j.kind = 'lease' and d.member = cast(j.member as binary) and d.seq < j.seq
                and not coalesce(json_contains(v_stale, cast(j.place as char)), false);
        end if;
        if v_parts and v_ended then
            begin
                -- One by one: to remove a range would lock the gap beside it in a caller's transaction.
                declare v_done    boolean default false;
                declare v_zone_id int;
                declare v_key     varbinary(255);
                declare v_seq     bigint;
                declare c_ended cursor for
                    select h.zone_id, h.bucket_key, h.seq
                    from json_table(p_heads, '$[*]' columns (
                        place    for ordinality,
                        zone_id  int path '$[0]',
                        at_us    bigint path '$[6]',
                        ended    boolean path '$[11][0][9]',
                        key_text varchar(255) character set utf8mb4 path '$[13]'
                    )) j
                    straight_join zone_hold h force index (zone_hold_ends)
                        on h.zone_id = j.zone_id and h.bucket_key = cast(j.key_text as binary)
                            and h.ends_at <= date_add(v_epoch, interval j.at_us microsecond)
                    where j.ended and not coalesce(json_contains(v_stale, cast(j.place as char)), false);
                declare continue handler for not found set v_done = true;
                open c_ended;
                clear: loop
                    fetch c_ended into v_zone_id, v_key, v_seq;
                    if v_done then
                        leave clear;
                    end if;
                    delete from zone_hold
                    where zone_id = v_zone_id and bucket_key = v_key and seq = v_seq;
                end loop;
                close c_ended;
            end;
        end if;
        if v_parts then
            insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at, member)
            select j.zone_id, cast(j.key_text as binary), j.seq,
                date_add(v_epoch, interval coalesce(j.charged_us, j.at_us) microsecond), j.amount,
                date_add(v_epoch, interval least(j.ends_us, v_last_us) microsecond), cast(j.member as binary)
            from json_table(p_heads, '$[*]' columns (
                place    for ordinality,
                zone_id  int path '$[0]',
                at_us    bigint path '$[6]',
                key_text varchar(255) character set utf8mb4 path '$[13]',
                nested path '$[12][*]' columns (
                    seq        bigint path '$[0]',
                    amount     bigint path '$[1]',
                    ends_us    bigint path '$[2]',
                    member     varchar(255) character set utf8mb4 path '$[3]',
                    charged_us bigint path '$[4]'
                )
            )) j
            where j.seq is not null and not coalesce(json_contains(v_stale, cast(j.place as char)), false)
            on duplicate key update
                charged_at = date_add(v_epoch, interval coalesce(j.charged_us, j.at_us) microsecond),
                amount = j.amount,
                ends_at = date_add(v_epoch, interval least(j.ends_us, v_last_us) microsecond),
                member = cast(j.member as binary);
        end if;
        if p_own then
            commit and no chain no release;
        else
            release savepoint tallygate_append;
        end if;
        set innodb_lock_wait_timeout = v_lock_wait_s;
        set sql_safe_updates = v_safe_updates;
    end;
    select v_now_us as now_us, cast(v_stale as char) as stale;
end;
