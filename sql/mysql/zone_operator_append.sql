-- zone_operator_append: what an operator does to a bucket goes into its ledger: a ban, a limit of its own, and their ends.
--
-- For a process that decides by itself: it holds the bucket by zone_engine_hold_one in the same transaction, and derives from that
-- how the bucket goes on. As with zone_engine_append, a caller whose statement is killed must roll back.
--
-- Arguments  p_was_seq, p_was_hash  where the bucket was when the row was derived
--            p_zone_version  the version of the zone in force
--            p_kind          ban, unban, override, override_end
--            p_at_us         last_at of the bucket, and created_at of the row
--            p_rate, p_window_us, p_burst, p_rate_gcd, p_ban_exempt  override: columns of the limit
--            p_login         the name of the session, which is in the hash
--            the others are columns of the bucket, of the row, or of both. Times are microseconds since 1970
-- Result     as of zone_engine_append_one; fate is 0
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     TG003 (31003) what does not follow, or a login that is not the session's; TG006 (31006) no transaction is open; TG009
--            (31009) the zone has another version, or the time is not now; TG010 (31010) the bucket has moved on
drop procedure if exists zone_operator_append;
create procedure zone_operator_append(
    in p_zone_id         int,
    in p_bucket_key      varchar(4000) character set utf8mb4,
    in p_was_seq         bigint,
    in p_was_hash        varbinary(100),
    in p_zone_version    int,
    in p_txn_id          varbinary(100),
    in p_kind            varchar(20) character set ascii collate ascii_bin,
    in p_remaining       bigint,
    in p_zone_limit      bigint,
    in p_at_us           bigint,
    in p_ends_us         bigint,
    in p_level           bigint,
    in p_strikes         bigint,
    in p_banned_until_us bigint,
    in p_ban_strikes     bigint,
    in p_carried         bigint,
    in p_carried_us      bigint,
    in p_carried_total   bigint,
    in p_carried_seq     bigint,
    in p_override_seq    bigint,
    in p_bans            int,
    in p_holding         boolean,
    in p_rate            bigint,
    in p_window_us       bigint,
    in p_burst           bigint,
    in p_rate_gcd        bigint,
    in p_ban_exempt      boolean,
    in p_note            varchar(8000) character set utf8mb4,
    in p_actor           varchar(8000) character set utf8mb4,
    in p_login           varchar(400) character set utf8mb4,
    in p_row_hash        varbinary(100)
)
sql security definer
begin
    declare v_epoch       datetime default timestamp'1970-01-01 00:00:00';
    declare v_last_us     bigint default 253402300799999999;
    declare v_key         varbinary(4000) default cast(p_bucket_key as binary);
    declare v_seq         bigint default p_was_seq + 1;
    declare v_at          datetime(6) default date_add(v_epoch, interval p_at_us microsecond);
    declare v_ends_at     datetime(6) default date_add(v_epoch, interval least(p_ends_us, v_last_us) microsecond);
    declare v_now_us      bigint;
    declare v_head_seq    bigint;
    declare v_was_at      datetime(6);
    declare v_was_us      bigint;
    declare v_spent_total bigint;
    declare v_strikes     bigint;
    declare v_banned      datetime(6)
        default date_add(v_epoch, interval least(p_banned_until_us, v_last_us) microsecond);
    declare v_was_banned  datetime(6);
    declare v_bans        int;
    declare v_ban_strikes bigint;
    declare v_override    bigint;
    declare v_salt        binary(16);
    declare v_hash        binary(32);
    declare v_version     int;
    declare exit handler for sqlexception, 1265
    begin
        resignal;
    end;
    call zone_transaction_require();
    call zone_clock(v_now_us);

    -- 1. The bucket, where it was, and the policy.
    select b.seq, b.last_at, timestampdiff(microsecond, v_epoch, b.last_at), b.spent_total, b.strikes,
        b.banned_until, b.bans, b.ban_strikes, b.override_seq, b.salt, b.row_hash
    into v_head_seq, v_was_at, v_was_us, v_spent_total, v_strikes, v_was_banned, v_bans, v_ban_strikes, v_override, v_salt,
        v_hash
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = v_key
    for update;
    if not (v_head_seq <=> p_was_seq and v_hash <=> p_was_hash) then
        call zone_error('moved', null, null, null);
    end if;
    select z.version
    into v_version
    from zone_master z
    where z.id = p_zone_id;
    if not v_version <=> p_zone_version
        or (p_at_us between v_now_us - 10000000 and v_now_us or (p_at_us = v_was_us and p_at_us > v_now_us)) is not true
    then
        call zone_error('stale', null, null, null);
    end if;

    -- 2. Does the row follow? A login is compared byte by byte.
    if (
        p_kind in ('ban', 'unban', 'override', 'override_end')
        and cast(p_login as binary) = cast(user() as binary)
        and length(p_txn_id) = 16
        and p_txn_id <> repeat(x'00', 16)
        and length(p_row_hash) = 32
        and p_remaining >= 0
        and p_zone_limit between 0 and 1099511627776
        and p_at_us >= coalesce(v_was_us, 0)
        and p_strikes = v_strikes
        and p_bans >= 0
        and (
            coalesce(p_carried, p_carried_us, p_carried_total, p_carried_seq) is null
            or (
                p_carried between 0 and 4398046511104
                and p_carried_us is not null
                and p_carried_total between 0 and v_spent_total
                and p_carried_seq between 0 and v_seq
            )
        )
        -- A ban and its end leave the override as it is, or find that it has ended; an override and its end leave the ban.
        and case p_kind
            when 'override' then p_override_seq = v_seq
            when 'override_end' then p_override_seq is null and v_override is not null
            else coalesce(p_override_seq = v_override, p_override_seq is null)
        end
        and case p_kind
            when 'ban' then p_banned_until_us = p_ends_us and p_ends_us - p_at_us between 1 and 315576000000000
                and p_bans = v_bans and p_ban_strikes = p_strikes
            when 'unban' then v_banned is null and v_was_banned > v_at and p_bans = 0 and p_ban_strikes = p_strikes
            else v_banned <=> v_was_banned and p_bans = v_bans and p_ban_strikes = v_ban_strikes
        end
        and coalesce(char_length(p_note), 0) <= 1000
        and coalesce(char_length(p_actor), 0) <= 1000
    ) is not true then
        call zone_error('append', p_zone_id, v_seq, null);
    end if;

    -- 3. Append. Rows number themselves, as in zone_engine_append.
    if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
        call zone_error('insert id', @@session.insert_id, null, null);
    end if;
    if p_kind = 'override' then
        insert into zone_override (zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at)
        values (p_zone_id, v_key, v_seq, p_rate, p_window_us, p_burst, p_rate_gcd, p_ban_exempt, v_ends_at);
    end if;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining, zone_limit,
        level, strikes, created_at, prev_at, ends_at, note, actor, login, salt, row_hash
    )
    values (
        p_txn_id, p_zone_id, p_zone_version, v_key, v_seq, p_kind, false, 'recorded', 0, 0, v_spent_total, p_remaining,
        p_zone_limit, p_level, p_strikes, v_at, v_was_at, v_ends_at, p_note, p_actor, p_login, if(v_seq = 1, v_salt, null),
        p_row_hash
    );
    if last_insert_id() = 0 then
        call zone_error('insert id', 0, null, null);
    end if;
    update zone_bucket_lock b
    set b.seq = v_seq,
        b.last_at = v_at,
        b.level = p_level,
        b.zone_version = p_zone_version,
        b.banned_until = v_banned,
        b.bans = p_bans,
        b.ban_strikes = p_ban_strikes,
        b.carried = p_carried,
        b.carried_at = date_add(v_epoch, interval p_carried_us microsecond),
        b.carried_total = p_carried_total,
        b.carried_seq = p_carried_seq,
        b.override_seq = p_override_seq,
        b.holding = p_holding,
        b.row_hash = p_row_hash
    where b.zone_id = p_zone_id and b.bucket_key = v_key;
    select v_now_us as now_us, 0 as fate;
end;
