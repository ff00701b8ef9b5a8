-- zone_engine_hold: what there is of some buckets, for a process that decides by itself.
--
-- Arguments  p_buckets      the buckets, each once, in the byte order of zone and key: [[zone, key], …]
--            p_txns         transactions that may be in the ledger, in hex: [[zone, key, transaction], …]
--            p_window_us    the longest window that is asked about besides those of the zones and of overrides
--            p_lock         hold the buckets' rows until the caller's transaction ends, and make those that are not there
--            p_lock_wait_s  as in zone_check
-- Result     several. The first has a row for each bucket, in that order: its head, null where there is none; its override
--            in force; the version of its zone in force, null where there is no zone. Times are microseconds since 1970.
--            Those after it say of which bucket they are by its place, from 1: back_place, the head that the ledger of a
--            bucket has whose row was removed; total_place, where a sliding log in force has charges in its window, what
--            had been spent in all (total) before a time (total_us); hold_place, what of its charges ends by itself. The
--            next says of which transaction its rows of the ledger are: past_place. The last, whole, says that these are all
-- Locks      nothing; with p_lock the buckets' rows, see zone_bucket_open
-- Errors     with p_lock TG006 (31006) no transaction is open, and those of zone_bucket_open; 1205 the lock was not had in
--            time
drop procedure if exists zone_engine_hold;
create procedure zone_engine_hold(
    in p_buckets     json,
    in p_txns        json,
    in p_window_us   bigint,
    in p_lock        boolean,
    in p_lock_wait_s int
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_now_us      bigint;
    declare v_done        boolean default false;
    declare v_place       bigint;
    declare v_zone_id     int;
    declare v_key_text    varchar(255) character set utf8mb4;
    declare v_key         varbinary(255);
    declare v_seq         bigint;
    declare v_last_at     datetime(6);
    declare v_from        datetime(6);
    declare v_charged     datetime(6);
    declare v_version     int;
    declare v_holding     boolean;
    declare v_total       bigint;
    declare v_spent_total bigint;
    declare v_level       bigint;
    declare v_strikes     bigint;
    declare v_salt        binary(16);
    declare v_row_hash    binary(32);
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    declare c_bucket cursor for
        select j.zone_id, j.key_text
        from json_table(p_buckets, '$[*]' columns (
            place    for ordinality,
            zone_id  int path '$[0]',
            key_text varchar(255) character set utf8mb4 path '$[1]'
        )) j
        order by j.place;
    -- Those of which there is more to tell: a row that was removed, a window with charges, what ends by itself.
    declare c_more cursor for
        select j.place, j.zone_id, left(cast(j.key_text as binary), 255), b.seq, b.last_at, b.holding,
            if(
                z.algorithm = 'sliding-log',
                date_add(v_epoch, interval v_now_us - z.window_us + 1 microsecond), null
            ),
            b.last_at - interval 2 * greatest(p_window_us, coalesce(o.window_us, 0), (
                select max(v.window_us)
                from zone_version v
                where v.zone_id = j.zone_id and v.version >= b.zone_version
            )) microsecond
        from json_table(p_buckets, '$[*]' columns (
            place    for ordinality,
            zone_id  int path '$[0]',
            key_text varchar(255) character set utf8mb4 path '$[1]'
        )) j
        left join zone_bucket_lock b force index (primary)
            on b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
        left join zone_master z force index (primary) on z.id = j.zone_id
        left join zone_bucket_removed r force index (primary) on r.zone_id = j.zone_id
        left join zone_override o force index (primary)
            on o.zone_id = b.zone_id and o.bucket_key = b.bucket_key and o.seq = b.override_seq
        where (b.seq is null and r.zone_id is not null)
            or (b.seq > 0 and (b.holding or z.algorithm = 'sliding-log'))
        order by j.place;
    declare continue handler for not found set v_done = true;
    declare exit handler for sqlexception, 1265
    begin
        set innodb_lock_wait_timeout = v_lock_wait_s;
        resignal;
    end;
    if p_lock then
        call zone_transaction_require();
        set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
        open c_bucket;
        lock_each: loop
            fetch c_bucket into v_zone_id, v_key_text;
            if v_done then
                leave lock_each;
            end if;
            call zone_bucket_open(v_zone_id, v_key_text, false);
        end loop;
        close c_bucket;
        set innodb_lock_wait_timeout = v_lock_wait_s;
    end if;
    -- The clock, after the locks.
    call zone_clock(v_now_us);
    select v_now_us as now_us, z.version, b.seq, timestampdiff(microsecond, v_epoch, b.last_at) as last_us, b.spent_total,
        b.level, b.strikes, b.zone_version, timestampdiff(microsecond, v_epoch, b.banned_until) as banned_us, b.bans,
        b.ban_strikes, b.carried, timestampdiff(microsecond, v_epoch, b.carried_at) as carried_us, b.carried_total,
        b.carried_seq, b.holding, b.override_seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt,
        timestampdiff(microsecond, v_epoch, o.ends_at) as ends_us, b.salt, b.row_hash, b.moved_to
    from json_table(p_buckets, '$[*]' columns (
        place    for ordinality,
        zone_id  int path '$[0]',
        key_text varchar(255) character set utf8mb4 path '$[1]'
    )) j
    left join zone_bucket_lock b force index (primary)
        on b.zone_id = j.zone_id and b.bucket_key = cast(j.key_text as binary)
    left join zone_master z force index (primary) on z.id = j.zone_id
    left join zone_override o force index (primary)
        on o.zone_id = b.zone_id and o.bucket_key = b.bucket_key and o.seq = b.override_seq
    order by j.place;
    -- A range is read by itself: of a bound that comes from a join no index is used.
    set v_done = false;
    open c_more;
    more: loop
        fetch c_more into v_place, v_zone_id, v_key, v_seq, v_last_at, v_holding, v_from, v_charged;
        if v_done then
            leave more;
        end if;
        if v_seq is null then
            call zone_head_back(
                v_zone_id, v_key, v_seq, v_last_at, v_spent_total, v_level, v_version, v_strikes, v_salt, v_row_hash
            );
            if v_seq > 0 then
                select v_place as back_place, v_seq as seq, timestampdiff(microsecond, v_epoch, v_last_at) as last_us,
                    v_spent_total as spent_total, v_level as level, v_strikes as strikes, v_version as zone_version,
                    v_salt as salt, v_row_hash as row_hash;
            end if;
        end if;
        if v_from <= v_last_at then
            set v_total = null;
            select t.spent_total - t.spent
            into v_total
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at >= v_from and t.sealed
            order by t.created_at, t.seq
            limit 1;
            if v_total is not null then
                select v_place as total_place, timestampdiff(microsecond, v_epoch, v_from) as total_us,
                    v_total as total;
            end if;
        end if;
        if v_holding then
            -- The holds that end after the last row, and those that were charged in a window that can be asked about:
            -- that which was open at the last row, and, of a sliding counter, the slot before that, which is no longer.
            select v_place as hold_place, h.seq, timestampdiff(microsecond, v_epoch, h.charged_at) as charged_us, h.amount,
                timestampdiff(microsecond, v_epoch, h.ends_at) as ends_us, h.member
            from zone_hold h force index (zone_hold_ends)
            where h.zone_id = v_zone_id and h.bucket_key = v_key and h.ends_at > v_last_at
            union all
            select v_place, h.seq, timestampdiff(microsecond, v_epoch, h.charged_at), h.amount,
                timestampdiff(microsecond, v_epoch, h.ends_at), h.member
            from zone_hold h force index (zone_hold_charged)
            where h.zone_id = v_zone_id and h.bucket_key = v_key and h.charged_at > v_charged and h.ends_at <= v_last_at;
        end if;
        set v_done = false;
    end loop;
    close c_more;
    if json_length(p_txns) > 0 then
        select cast(c.place as signed) as past_place, t.id, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason,
            t.critical, t.band, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level,
            t.strikes, t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt,
            t.row_hash
        from json_table(p_txns, '$[*]' columns (
            place    for ordinality,
            zone_id  int path '$[0]',
            key_text varchar(255) character set utf8mb4 path '$[1]',
            txn      varchar(32) character set ascii path '$[2]'
        )) c
        straight_join zone_txn t force index (zone_txn_bucket_txn)
            on t.zone_id = c.zone_id and t.bucket_key = cast(c.key_text as binary) and t.txn_id = unhex(c.txn)
        where t.sealed
        order by c.place, t.created_at, t.seq;
    end if;
    select true as whole;
end;
