-- zone_engine_append_one: a check that a process has decided by itself, or that passed unchecked, goes into the ledger, where its
-- bucket is still where it was derived from: zone_engine_append of one bucket and one row of which nothing ends by itself.
--
-- By values: to put arrays together and take them apart costs more than all the rest.
--
-- Arguments  p_is_new        the bucket has no row in the database
--            p_was_…         where it was when the row was derived: seq, row_hash, last_at and spent_total
--            p_named         the transaction may have been decided before
--            p_zone_version  the version of the zone that decided
--            p_at_us         last_at of the bucket, and created_at of the row
--            p_skip_locked   do not wait where another transaction holds the bucket
--            p_lock_wait_s   as in zone_check
--            p_own           in a transaction of its own; else in one that is open and holds the bucket since before the row was
--                            derived, which may be a caller's, of any isolation level
--            the others are columns of the bucket, of the row, or of both. Times are microseconds since 1970
-- Result     one row. fate: 0, the row is in the ledger; 1, the bucket has moved on, or is held and not waited for. now_us: the
--            database's clock when the call began. Without p_own a caller whose statement is killed returns to the savepoint
--            tallygate_append, and has appended nothing
-- Locks      the bucket's row, and, shared, the zone of a new one, until the transaction ends
-- Errors     TG003 (31003) what does not follow, a key that cannot be stored, or an unchecked check of a zone that was never
--            open; TG006 (31006) without p_own no
--            transaction is open; TG009 (31009) the zone has another version, or the time is not now; TG010 (31010) the bucket
--            has moved on, without p_skip_locked; TG011 (31011) the key of a new bucket belongs to another database; 1205 the lock
--            was not had in time; 1213 two callers made the same bucket; 1568 with p_own a transaction is open; it stays as it is
drop procedure if exists zone_engine_append_one;
create procedure zone_engine_append_one(
    in p_zone_id          int,
    in p_bucket_key       varchar(4000) character set utf8mb4,
    in p_is_new           boolean,
    in p_was_seq          bigint,
    in p_was_hash         varbinary(100),
    in p_was_us           bigint,
    in p_was_total        bigint,
    in p_zone_version     int,
    in p_txn_id           varbinary(100),
    in p_named            boolean,
    in p_kind             varchar(20) character set ascii collate ascii_bin,
    in p_checks           int,
    in p_blocked          boolean,
    in p_reason           varchar(20) character set ascii collate ascii_bin,
    in p_critical         boolean,
    in p_cost             bigint,
    in p_spent            bigint,
    in p_remaining        bigint,
    in p_zone_limit       bigint,
    in p_retry_after_us   bigint,
    in p_delay_us         bigint,
    in p_ends_us          bigint,
    in p_member           varchar(255) character set utf8mb4,
    in p_note             varchar(8000) character set utf8mb4,
    in p_at_us            bigint,
    in p_level            bigint,
    in p_strikes          bigint,
    in p_banned_until_us  bigint,
    in p_ban_strikes      bigint,
    in p_carried          bigint,
    in p_carried_us       bigint,
    in p_carried_total    bigint,
    in p_carried_seq      bigint,
    in p_override_seq     bigint,
    in p_bans             int,
    in p_holding          boolean,
    in p_salt             varbinary(100),
    in p_row_hash         varbinary(100),
    in p_skip_locked      boolean,
    in p_lock_wait_s      int,
    in p_own              boolean
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_last_us     bigint default 253402300799999999;
    declare v_key         varbinary(4000) default cast(p_bucket_key as binary);
    declare v_seq         bigint default p_was_seq + 1;
    declare v_total       bigint default p_was_total + p_spent;
    declare v_was_at      datetime(6) default date_add(v_epoch, interval p_was_us microsecond);
    declare v_at          datetime(6) default date_add(v_epoch, interval p_at_us microsecond);
    declare v_now_us      bigint;
    declare v_fate        int default 1;
    declare v_held        boolean;
    declare v_version     int;
    declare v_row_hash    binary(32);
    declare v_home        varchar(63) character set ascii;
    declare v_lock_wait_s int default @@session.innodb_lock_wait_timeout;
    if p_own then
        -- Fails with 1568 inside an open transaction, and leaves that as it is.
        set transaction isolation level read committed;
    else
        call zone_transaction_require();
        savepoint tallygate_append;
    end if;
    append_one: begin
        declare exit handler for sqlexception, 1265
        begin
            if p_own then
                rollback and no chain no release;
            end if;
            set innodb_lock_wait_timeout = v_lock_wait_s;
            resignal;
        end;
        set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
        -- Before the clock: a clock of tests is a row, and to read it would use up the level.
        if p_own then
            start transaction;
        end if;
        call zone_clock(v_now_us);

        -- 1. Does the row follow?
        if (
            p_at_us between v_now_us - 1000000 and v_now_us
            or (p_at_us = p_was_us and p_was_us > v_now_us)
        ) is not true then
            call zone_error('stale', null, null, null);
        end if;
        if p_is_new and (
            length(p_bucket_key) between 1 and 255 and left(v_key, 7) <> 'erased:'
            and p_bucket_key not regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]'
        ) is not true then
            call zone_error('key', length(p_bucket_key), null, null);
        end if;
        if (
            (
                p_kind in ('check', 'coalesced')
                and (
                    p_reason in ('over_limit', 'exceeds_limit', 'banned', 'held_back')
                    or (not p_blocked and p_reason in ('within_limit', 'soft', 'off'))
                )
                and p_note is null
                or p_kind = 'unchecked' and not p_blocked and p_reason = 'unchecked' and p_spent = 0 and p_member is null
                and coalesce(char_length(p_note), 0) <= 1000
            )
            and (p_checks = 1 or p_kind = 'coalesced')
            and p_cost between 0 and 1099511627776
            and length(p_row_hash) = 32
            and (v_seq > 1 or length(p_salt) = 16)
            and length(p_txn_id) = 16
            and p_txn_id <> repeat(x'00', 16)
            and (p_was_seq = 0 or not p_is_new)
            and (p_was_seq = 0) = (p_was_us is null)
            and p_at_us >= coalesce(p_was_us, 0)
            -- It was carried, banned and excepted by then.
            and p_ban_strikes between 0 and p_strikes
            and (
                coalesce(p_carried, p_carried_us, p_carried_total, p_carried_seq) is null
                or (
                    p_carried between 0 and 4398046511104
                    and p_carried_us is not null
                    and p_carried_total between 0 and v_total
                    and p_carried_seq between 0 and v_seq
                )
            )
            and coalesce(p_override_seq, 1) between 1 and v_seq
            and p_bans >= 0
        ) is not true then
            call zone_error('append', p_zone_id, v_seq, null);
        end if;
        if p_kind = 'unchecked' and not exists (
            select 1
            from zone_version v
            where v.zone_id = p_zone_id and v.on_outage = 'open'
        ) then
            call zone_error('closed', p_zone_id, null, null);
        end if;

        -- 2. A process that did not look whether the transaction was decided before learns it here. One that is decided from now
        --    on moves the bucket. Not in a transaction that holds it and so has looked: what a condition reads is locked in a caller's.
        if p_own and p_named and v_seq > 1 and exists (
            select 1
            from zone_txn t force index (zone_txn_bucket_txn)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id and t.sealed
                and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'lease', 'local', 'offer')
        ) then
            leave append_one;
        end if;

        -- 3. Move the bucket, if it is where it was.
        if p_is_new then
            -- One that has a ledger and no row is not new.
            if exists (
                select 1
                from zone_bucket_removed r
                where r.zone_id = p_zone_id
            ) and (
                exists (
                    select 1
                    from zone_txn t force index (zone_txn_bucket_uq)
                    where t.zone_id = p_zone_id and t.bucket_key = v_key
                )
                or exists (
                    select 1
                    from zone_txn_dropped d
                    where d.zone_id = p_zone_id and d.bucket_key = v_key
                )
            ) then
                leave append_one;
            end if;
            if exists (select 1 from tallygate_shard) and not exists (
                select 1
                from zone_bucket_lock b
                where b.zone_id = p_zone_id and b.bucket_key = v_key
            ) then
                call zone_bucket_home(v_key, false, v_home);
                if v_home is not null then
                    call zone_error('home', v_home, null, null);
                end if;
            end if;
            begin
                declare exit handler for 1205
                begin
                    -- Somebody makes it too.
                    if not p_skip_locked then
                        resignal;
                    end if;
                end;
                if p_skip_locked then
                    -- The shortest that there is.
                    set innodb_lock_wait_timeout = 1;
                end if;
                insert into zone_bucket_lock (
                    zone_id, bucket_key, seq, last_at, spent_total, level, strikes, banned_until, ban_strikes, carried,
                    carried_at, carried_total, carried_seq, override_seq, zone_version, bans, holding, salt, row_hash
                )
                values (
                    p_zone_id, v_key, v_seq, v_at, v_total, p_level, p_strikes,
                    date_add(v_epoch, interval least(p_banned_until_us, v_last_us) microsecond), p_ban_strikes, p_carried,
                    date_add(v_epoch, interval p_carried_us microsecond), p_carried_total, p_carried_seq, p_override_seq,
                    p_zone_version, p_bans, p_holding, p_salt, p_row_hash
                )
                on duplicate key update seq = zone_bucket_lock.seq;
                -- One that stands there with another end of its chain is somebody else's.
                select b.row_hash
                into v_row_hash
                from zone_bucket_lock b
                where b.zone_id = p_zone_id and b.bucket_key = v_key;
            end;
            if not v_row_hash <=> p_row_hash then
                leave append_one;
            end if;
        else
            if p_skip_locked then
                select count(*)
                into v_held
                from zone_bucket_lock b
                where b.zone_id = p_zone_id and b.bucket_key = v_key
                for update skip locked;
                if not v_held then
                    leave append_one;
                end if;
            end if;
            update zone_bucket_lock b
            set b.seq = v_seq,
                b.last_at = v_at,
                b.spent_total = v_total,
                b.level = p_level,
                b.strikes = p_strikes,
                b.banned_until = date_add(v_epoch, interval least(p_banned_until_us, v_last_us) microsecond),
                b.ban_strikes = p_ban_strikes,
                b.carried = p_carried,
                b.carried_at = date_add(v_epoch, interval p_carried_us microsecond),
                b.carried_total = p_carried_total,
                b.carried_seq = p_carried_seq,
                b.override_seq = p_override_seq,
                b.zone_version = p_zone_version,
                b.bans = p_bans,
                b.holding = p_holding,
                b.row_hash = p_row_hash
            where b.zone_id = p_zone_id and b.bucket_key = v_key
                and b.seq = p_was_seq and b.row_hash = p_was_hash and b.spent_total = p_was_total and b.last_at <=> v_was_at;
            if row_count() = 0 then
                leave append_one;
            end if;
        end if;

        -- 4. The policy, by a statement that began after the lock. A zone without a row of the ledger may be removed.
        if p_is_new then
            select z.version
            into v_version
            from zone_master z
            where z.id = p_zone_id
            lock in share mode;
        else
            select z.version
            into v_version
            from zone_master z
            where z.id = p_zone_id;
        end if;
        if not v_version <=> p_zone_version then
            -- A caller's transaction should not fail since the policy changes between two of its statements: it was in force when
            -- the bucket was held.
            select count(*) > 0 and not p_own
            into v_held
            from zone_version v
            where v.zone_id = p_zone_id and v.version = p_zone_version + 1 and v.changed_at >= v_at;
            if not v_held then
                call zone_error('stale', null, null, null);
            end if;
        end if;

        -- 5. Write the row. It numbers itself. A number that the session has set would be taken, and from the largest on there
        --    is none.
        if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
            call zone_error('insert id', @@session.insert_id, null, null);
        end if;
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent, spent_total,
            remaining, zone_limit, retry_after_us, delay_us, level, strikes, created_at, prev_at, ends_at, member, note, salt,
            row_hash
        )
        values (
            p_txn_id, p_zone_id, p_zone_version, v_key, v_seq, p_kind, p_checks, p_blocked, p_reason, p_critical, p_cost,
            p_spent, v_total, p_remaining, p_zone_limit, p_retry_after_us, p_delay_us, p_level, p_strikes, v_at, v_was_at,
            date_add(v_epoch, interval least(p_ends_us, v_last_us) microsecond), cast(p_member as binary), p_note,
            if(v_seq = 1, p_salt, null), p_row_hash
        );
        -- MySQL takes 0 too, and does not tell it beforehand.
        if last_insert_id() = 0 then
            call zone_error('insert id', 0, null, null);
        end if;
        set v_fate = 0;
    end append_one;
    if p_own then
        commit and no chain no release;
    else
        release savepoint tallygate_append;
    end if;
    set innodb_lock_wait_timeout = v_lock_wait_s;
    select v_now_us as now_us, v_fate as fate;
end;
