-- zone_operator_append: what an operator does to a bucket goes into its ledger: a ban, a limit of its own, and their ends.
--
-- For a process that decides by itself: it holds the bucket by zone_engine_hold in the same transaction, and derives from that how
-- the bucket goes on.
--
-- Arguments  p_was_seq, p_was_hash  where the bucket was when the row was derived
--            p_zone_version  the version of the zone in force
--            p_kind          ban, unban, override, override_end
--            p_at            last_at of the bucket, and created_at of the row
--            p_rate, p_window_us, p_burst, p_rate_gcd, p_ban_exempt  override: columns of the limit
--            p_login         the name of the session, which is in the hash
--            the others are columns of the bucket, of the row, or of both
-- Result     as of zone_engine_append_one; fate is 0
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG003 what does not follow, or a login that is not the session's; TG009 the zone has another version, or the time is
--            not now; TG010 the bucket has moved on
create function zone_operator_append(
    p_zone_id       int,
    p_bucket_key    text,
    p_was_seq       bigint,
    p_was_hash      bytea,
    p_zone_version  int,
    p_txn_id        uuid,
    p_kind          text,
    p_remaining     bigint,
    p_zone_limit    bigint,
    p_at            timestamptz,
    p_ends_at       timestamptz,
    p_level         bigint,
    p_strikes       bigint,
    p_banned_until  timestamptz,
    p_ban_strikes   bigint,
    p_carried       bigint,
    p_carried_at    timestamptz,
    p_carried_total bigint,
    p_carried_seq   bigint,
    p_override_seq  bigint,
    p_bans          int,
    p_holding       boolean,
    p_rate          bigint,
    p_window_us     bigint,
    p_burst         bigint,
    p_rate_gcd      bigint,
    p_ban_exempt    boolean,
    p_note          text,
    p_actor         text,
    p_login         text,
    p_row_hash      bytea,
    out now         timestamptz,
    out fate        int
)
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_engine_hold.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
    v_seq    constant bigint := p_was_seq + 1;
    v_head   zone_bucket_lock;
    c_after  constant timestamptz := timestamptz '-infinity'; -- programs read times between these
    c_before constant timestamptz := timestamptz '262143-01-01 00:00:00+00';
begin
    now := pg_catalog.clock_timestamp();
    fate := 0;

    -- 1. The bucket, where it was, and the policy.
    v_head := zone_bucket_take(p_zone_id, p_bucket_key, null);
    if v_head.seq is distinct from p_was_seq or v_head.row_hash is distinct from p_was_hash then
        perform zone_error('moved');
    end if;
    perform zone_error('stale')
    where (p_at between now - interval '10 seconds' and now or (p_at = v_head.last_at and p_at > now)) is not true
        or not exists (select from zone_master z where z.id = p_zone_id and z.version = p_zone_version);

    -- 2. Does the row follow?
    if (
        p_kind in ('ban', 'unban', 'override', 'override_end')
        and p_login = session_user
        and p_txn_id <> '00000000-0000-0000-0000-000000000000'
        and octet_length(p_row_hash) = 32
        and p_remaining >= 0
        and p_zone_limit between 0 and 1099511627776
        and coalesce(p_level > -9223372036854775808, true)
        and coalesce(p_at >= v_head.last_at, true)
        and p_strikes = v_head.strikes
        and p_bans >= 0
        and num_nulls(p_carried, p_carried_at, p_carried_total, p_carried_seq) in (0, 4)
        and coalesce(p_carried between 0 and 4398046511104, true)
        and coalesce(p_carried_total between 0 and v_head.spent_total, true)
        and coalesce(p_carried_seq between 0 and v_seq, true)
        -- A ban and its end leave the override as it is, or find that it has ended; an override and its end leave the ban.
        and case p_kind
            when 'override' then p_override_seq = v_seq
            when 'override_end' then p_override_seq is null and v_head.override_seq is not null
            else coalesce(p_override_seq = v_head.override_seq, p_override_seq is null)
        end
        and case p_kind
            when 'ban' then p_banned_until = p_ends_at and p_ends_at > p_at and p_ends_at <= p_at + interval '315576000 seconds'
                and p_bans = v_head.bans and p_ban_strikes = p_strikes
            when 'unban' then p_banned_until is null and v_head.banned_until > p_at and p_bans = 0 and p_ban_strikes = p_strikes
            else p_banned_until is not distinct from v_head.banned_until and p_bans = v_head.bans
                and p_ban_strikes = v_head.ban_strikes
        end
        and length(p_note) <= 1000 is not false
        and length(p_actor) <= 1000 is not false
        and coalesce(least(p_ends_at, p_banned_until, p_carried_at) > c_after, true)
        and coalesce(greatest(p_ends_at, p_banned_until, p_carried_at) < c_before, true)
    ) is not true then
        perform zone_error('append', p_zone_id::text, v_seq::text);
    end if;

    -- 3. Append.
    if p_kind = 'override' then
        insert into zone_override (zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at)
        values (p_zone_id, p_bucket_key, v_seq, p_rate, p_window_us, p_burst, p_rate_gcd, p_ban_exempt, p_ends_at);
    end if;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining, zone_limit,
        level, strikes, created_at, prev_at, ends_at, note, actor, login, salt, row_hash
    )
    values (
        p_txn_id, p_zone_id, p_zone_version, p_bucket_key, v_seq, p_kind, false, 'recorded', 0, 0, v_head.spent_total, p_remaining,
        p_zone_limit, p_level, p_strikes, p_at, v_head.last_at, p_ends_at, p_note, p_actor, p_login,
        case when v_seq = 1 then v_head.salt end, p_row_hash
    );
    v_head.seq := v_seq;
    v_head.last_at := p_at;
    v_head.level := p_level;
    v_head.zone_version := p_zone_version;
    v_head.banned_until := p_banned_until;
    v_head.bans := p_bans;
    v_head.ban_strikes := p_ban_strikes;
    v_head.carried := p_carried;
    v_head.carried_at := p_carried_at;
    v_head.carried_total := p_carried_total;
    v_head.carried_seq := p_carried_seq;
    v_head.override_seq := p_override_seq;
    v_head.holding := p_holding;
    v_head.row_hash := p_row_hash;
    perform zone_head_set(v_head);
end
$$;
