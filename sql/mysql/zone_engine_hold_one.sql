-- zone_engine_hold_one: zone_engine_hold of one bucket, for one transaction at most.
--
-- By values: to take arrays apart, to open a cursor and to join costs more than all the rest.
--
-- With p_lock the transaction may be a caller's, of any isolation level, and with a snapshot that is older than the bucket. Rows are
-- committed in their order, so those that it hides follow each other: they are fetched one by one, newest first, by point reads
-- that lock the row and no gap beside it. Behind them may lie rows of the transaction itself. Which rows it hides is kept for its next
-- calls in a variable of the session, the seq and time of the first by bucket: the head is its own by then, and shows no difference.
-- The row of one bucket is the witness for all: a snapshot that shows it is of a later transaction.
--
-- Arguments  p_txn_id       a transaction that may be in the ledger; null for none
--            p_lock_wait_s  as in zone_check; null in a caller's transaction, which must be open
--            the others as in zone_engine_hold
-- Result     as zone_engine_hold; and, each by itself, the rows that the caller's snapshot hides, with what the transaction has
--            added behind them: hidden_place
-- Locks      nothing; with p_lock the bucket's row, see zone_bucket_open; its override and the rows that the snapshot hides,
--            until the transaction ends
-- Errors     as zone_engine_hold; TG007 (31007) the caller's snapshot hides a policy, or rows of a bucket of which something ends by
--            itself or is predicted
drop procedure if exists zone_engine_hold_one;
create procedure zone_engine_hold_one(
    in p_zone_id     int,
    in p_bucket_key  varchar(4000) character set utf8mb4,
    in p_txn_id      varbinary(100),
    in p_window_us   bigint,
    in p_lock        boolean,
    in p_lock_wait_s int
)
sql security definer
begin
    declare v_epoch         datetime default timestamp'1970-01-01 00:00:00';
    declare v_key           varbinary(4000) default cast(p_bucket_key as binary);
    declare v_now_us        bigint;
    declare v_version       int;
    declare v_algorithm     varchar(20) character set ascii;
    declare v_window_us     bigint;
    declare v_seq           bigint;
    declare v_last_at       datetime(6);
    declare v_spent_total   bigint;
    declare v_level         bigint;
    declare v_strikes       bigint;
    declare v_zone_version  int;
    declare v_banned_until  datetime(6);
    declare v_bans          int;
    declare v_ban_strikes   bigint;
    declare v_carried       bigint;
    declare v_carried_at    datetime(6);
    declare v_carried_total bigint;
    declare v_carried_seq   bigint;
    declare v_holding       boolean default false;
    declare v_override_seq  bigint;
    declare v_rate          bigint;
    declare v_own_window_us bigint;
    declare v_burst         bigint;
    declare v_rate_gcd      bigint;
    declare v_ban_exempt    boolean;
    declare v_ends_at       datetime(6);
    declare v_salt          binary(16);
    declare v_row_hash      binary(32);
    declare v_moved_to      varchar(63) character set ascii;
    declare v_from          datetime(6);
    declare v_total         bigint;
    declare v_shapes        text character set utf8mb4;
    declare v_hides         boolean default false;
    declare v_lock_wait_s   int default @@session.innodb_lock_wait_timeout;
    declare continue handler for not found begin end;
    declare exit handler for sqlexception, 1265
    begin
        set innodb_lock_wait_timeout = v_lock_wait_s;
        resignal;
    end;
    if p_lock or p_lock_wait_s is null then
        call zone_transaction_require();
    end if;
    if p_lock then
        set innodb_lock_wait_timeout = coalesce(p_lock_wait_s, v_lock_wait_s);
        call zone_bucket_open(p_zone_id, p_bucket_key, false);
        set innodb_lock_wait_timeout = v_lock_wait_s;
    end if;
    -- The clock, after the lock.
    call zone_clock(v_now_us);
    select z.version, z.algorithm, z.window_us
    into v_version, v_algorithm, v_window_us
    from zone_master z
    where z.id = p_zone_id;
    -- One statement, since an override may be lifted meanwhile; and one that sees what was committed after a caller's snapshot.
    if p_lock then
        select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.zone_version, b.banned_until, b.bans, b.ban_strikes,
            b.carried, b.carried_at, b.carried_total, b.carried_seq, b.holding, b.override_seq, b.salt, b.row_hash, b.moved_to,
            b.shapes, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
        into v_seq, v_last_at, v_spent_total, v_level, v_strikes, v_zone_version, v_banned_until, v_bans, v_ban_strikes,
            v_carried, v_carried_at, v_carried_total, v_carried_seq, v_holding, v_override_seq, v_salt, v_row_hash, v_moved_to,
            v_shapes, v_rate, v_own_window_us, v_burst, v_rate_gcd, v_ban_exempt, v_ends_at
        from zone_bucket_lock b
        left join zone_override o
            on o.zone_id = b.zone_id and o.bucket_key = b.bucket_key and o.seq = b.override_seq
        where b.zone_id = p_zone_id and b.bucket_key = v_key
        for update;
        if coalesce(v_version < v_zone_version, v_version is null) then
            call zone_error('old snapshot', null, null, null);
        end if;
    else
        select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.zone_version, b.banned_until, b.bans, b.ban_strikes,
            b.carried, b.carried_at, b.carried_total, b.carried_seq, b.holding, b.override_seq, b.salt, b.row_hash, b.moved_to,
            o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
        into v_seq, v_last_at, v_spent_total, v_level, v_strikes, v_zone_version, v_banned_until, v_bans, v_ban_strikes,
            v_carried, v_carried_at, v_carried_total, v_carried_seq, v_holding, v_override_seq, v_salt, v_row_hash, v_moved_to,
            v_rate, v_own_window_us, v_burst, v_rate_gcd, v_ban_exempt, v_ends_at
        from zone_bucket_lock b
        left join zone_override o
            on o.zone_id = b.zone_id and o.bucket_key = b.bucket_key and o.seq = b.override_seq
        where b.zone_id = p_zone_id and b.bucket_key = v_key;
    end if;
    select v_now_us as now_us, v_version as version, v_seq as seq, timestampdiff(microsecond, v_epoch, v_last_at) as last_us,
        v_spent_total as spent_total, v_level as level, v_strikes as strikes, v_zone_version as zone_version,
        timestampdiff(microsecond, v_epoch, v_banned_until) as banned_us, v_bans as bans, v_ban_strikes as ban_strikes,
        v_carried as carried, timestampdiff(microsecond, v_epoch, v_carried_at) as carried_us,
        v_carried_total as carried_total, v_carried_seq as carried_seq, v_holding as holding, v_override_seq as override_seq,
        v_rate as rate, v_own_window_us as window_us, v_burst as burst, v_rate_gcd as rate_gcd, v_ban_exempt as ban_exempt,
        timestampdiff(microsecond, v_epoch, v_ends_at) as ends_us, v_salt as salt, v_row_hash as row_hash,
        v_moved_to as moved_to;
    if p_lock then
        begin
            declare v_bucket    varchar(600) character set ascii default concat(p_zone_id, ' ', hex(v_key));
            declare v_witness   varchar(600) character set ascii;
            declare v_seen      bigint;         -- the last row that the snapshot shows; null where it shows no head
            declare v_first     bigint;         -- the first that it hides
            declare v_first_us  bigint;
            declare v_first_at  datetime(6);
            declare v_row_seq   bigint default v_seq;
            declare v_row_at    datetime(6) default v_last_at;
            declare v_row       bigint;
            declare v_before_at datetime(6);
            select b.seq
            into v_seen
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key;
            if json_valid(@tallygate_hidden) then
                set v_witness = json_unquote(json_extract(@tallygate_hidden, '$.witness'));
                set v_first = json_extract(@tallygate_hidden, concat('$."', v_witness, '"[0]'));
                set v_first_us = json_extract(@tallygate_hidden, concat('$."', v_witness, '"[1]'));
                set v_first_at = date_add(v_epoch, interval v_first_us microsecond);
                select t.seq
                into v_row
                from zone_txn t force index (zone_txn_bucket_uq)
                where t.zone_id = substring_index(v_witness, ' ', 1)
                    and t.bucket_key = unhex(substring_index(v_witness, ' ', -1))
                    and t.created_at = v_first_at and t.seq = v_first;
                if v_row is not null then
                    -- All that it says is of an earlier transaction.
                    set @tallygate_hidden = null;
                end if;
                set v_first = json_extract(@tallygate_hidden, concat('$."', v_bucket, '"[0]'));
            end if;
            if v_first is not null then
                set v_seen = v_first - 1;
            elseif not v_seen <=> v_seq and (v_holding or v_shapes is not null) then
                call zone_error('old snapshot', null, null, null);
            end if;
            hidden: while v_row_seq > coalesce(v_seen, 0) do
                set v_row = null;
                select t.seq, t.prev_at
                into v_row, v_before_at
                from zone_txn t force index (zone_txn_bucket_uq)
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq
                lock in share mode;
                if v_row is null then
                    set @tallygate_hidden = null;
                    call zone_error('old snapshot', null, null, null);
                end if;
                if v_seen is null then
                    -- The row of the bucket was removed and made again since: its ledger shows what is hidden.
                    select t.seq
                    into v_seen
                    from zone_txn t force index (zone_txn_bucket_uq)
                    where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq;
                    if v_seen is not null then
                        leave hidden;
                    end if;
                end if;
                select 1 as hidden_place, t.id, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason,
                    t.critical, t.band, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us,
                    t.level, t.strikes, t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login,
                    t.salt, t.row_hash
                from zone_txn t force index (zone_txn_bucket_uq)
                where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at = v_row_at and t.seq = v_row_seq
                lock in share mode;
                set v_hides = true;
                set v_first_at = v_row_at;
                set v_row_seq = v_row_seq - 1;
                set v_row_at = v_before_at;
            end while;
            if v_hides and v_first is null then
                set @tallygate_hidden = json_set(
                    if(json_valid(@tallygate_hidden), @tallygate_hidden, json_object('witness', v_bucket)),
                    concat('$."', v_bucket, '"'),
                    json_array(v_row_seq + 1, timestampdiff(microsecond, v_epoch, v_first_at))
                );
            end if;
        end;
    end if;
    if v_seq is null and exists (
        select 1
        from zone_bucket_removed r
        where r.zone_id = p_zone_id
    ) then
        call zone_head_back(
            p_zone_id, v_key, v_seq, v_last_at, v_spent_total, v_level, v_zone_version, v_strikes, v_salt, v_row_hash
        );
        if v_seq > 0 then
            select 1 as back_place, v_seq as seq, timestampdiff(microsecond, v_epoch, v_last_at) as last_us,
                v_spent_total as spent_total, v_level as level, v_strikes as strikes, v_zone_version as zone_version,
                v_salt as salt, v_row_hash as row_hash;
        end if;
    end if;
    if v_algorithm = 'sliding-log' and v_seq > 0 and not v_hides then
        set v_from = date_add(v_epoch, interval v_now_us - v_window_us + 1 microsecond);
        if v_from <= v_last_at then
            select t.spent_total - t.spent
            into v_total
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.created_at >= v_from and t.sealed
            order by t.created_at, t.seq
            limit 1;
            if v_total is not null then
                select 1 as total_place, timestampdiff(microsecond, v_epoch, v_from) as total_us, v_total as total;
            end if;
        end if;
    end if;
    if v_holding and v_seq > 0 then
        -- As in zone_engine_hold.
        select max(v.window_us)
        into v_window_us
        from zone_version v
        where v.zone_id = p_zone_id and v.version >= v_zone_version;
        set v_from = v_last_at - interval 2 * greatest(p_window_us, coalesce(v_own_window_us, 0), v_window_us) microsecond;
        select 1 as hold_place, h.seq, timestampdiff(microsecond, v_epoch, h.charged_at) as charged_us, h.amount,
            timestampdiff(microsecond, v_epoch, h.ends_at) as ends_us, h.member
        from zone_hold h force index (zone_hold_ends)
        where h.zone_id = p_zone_id and h.bucket_key = v_key and h.ends_at > v_last_at
        union all
        select 1, h.seq, timestampdiff(microsecond, v_epoch, h.charged_at), h.amount,
            timestampdiff(microsecond, v_epoch, h.ends_at), h.member
        from zone_hold h force index (zone_hold_charged)
        where h.zone_id = p_zone_id and h.bucket_key = v_key and h.charged_at > v_from and h.ends_at <= v_last_at;
    end if;
    if p_txn_id is not null then
        select 1 as past_place, t.id, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band,
            t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes,
            t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash
        from zone_txn t force index (zone_txn_bucket_txn)
        where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id and t.sealed
        order by t.created_at, t.seq;
    end if;
    select true as whole;
end;
