-- zone_engine_append_one: a check that a process has decided by itself, or that passed unchecked, goes into the ledger, where its
-- bucket is still where it was derived from: zone_engine_append of one bucket and one row of which nothing ends by itself.
--
-- By values: to put arrays together and take them apart costs more than all the rest.
--
-- Arguments  p_is_new        the bucket has no row in the database
--            p_was_…         where it was when the row was derived: seq, row_hash, last_at and spent_total
--            p_named         the transaction may have been decided before
--            p_zone_version  the version of the zone that decided
--            p_at            last_at of the bucket, and created_at of the row
--            p_skip_locked   do not wait where another transaction holds the bucket
--            p_lock_wait_ms  as in zone_check
--            p_own           as in zone_check; in a caller's transaction the process has held the bucket, so the row is of the last
--                            ten seconds, by the version that was in force then
--            the others are columns of the bucket, of the row, or of both
-- Result     fate: 0, the row is in the ledger; 1, the bucket has moved on, or is held and not waited for. now: the database's
--            clock when the call began
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG003 what does not follow, a key that cannot be stored, or an unchecked check of a zone that was never open; TG009
--            the zone has another version, or the time is not now, but see p_own; TG010 the bucket knows the transaction; TG011 the key of a new bucket belongs to another database; 55P03 the
--            lock was not had in time
create function zone_engine_append_one(
    p_zone_id        int,
    p_bucket_key     text,
    p_is_new         boolean,
    p_was_seq        bigint,
    p_was_hash       bytea,
    p_was_at         timestamptz,
    p_was_total      bigint,
    p_zone_version   int,
    p_txn_id         uuid,
    p_named          boolean,
    p_kind           text,
    p_checks         int,
    p_blocked        boolean,
    p_reason         text,
    p_critical       boolean,
    p_cost           bigint,
    p_spent          bigint,
    p_remaining      bigint,
    p_zone_limit     bigint,
    p_retry_after_us bigint,
    p_delay_us       bigint,
    p_ends_at        timestamptz,
    p_member         text,
    p_note           text,
    p_at             timestamptz,
    p_level          bigint,
    p_strikes        bigint,
    p_banned_until   timestamptz,
    p_ban_strikes    bigint,
    p_carried        bigint,
    p_carried_at     timestamptz,
    p_carried_total  bigint,
    p_carried_seq    bigint,
    p_override_seq   bigint,
    p_bans           int,
    p_holding        boolean,
    p_salt           bytea,
    p_row_hash       bytea,
    p_skip_locked    boolean,
    p_lock_wait_ms   int,
    p_own            boolean,
    out now          timestamptz,
    out fate         int
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
    v_seq     constant bigint := p_was_seq + 1;
    v_total   constant bigint := p_was_total + p_spent;
    v_timeout constant text := coalesce(p_lock_wait_ms::text, current_setting('lock_timeout'));
    v_version int;
    v_opened  boolean := false; -- its row was made by this call
    v_durable boolean;
    c_after   constant timestamptz := timestamptz '-infinity'; -- programs read times between these
    c_before  constant timestamptz := timestamptz '262143-01-01 00:00:00+00';
begin
    now := pg_catalog.clock_timestamp();

    -- 1. Does the row follow?
    -- Of a bucket that a caller's transaction holds, it may be older.
    if (
        p_at between now - case when p_own then interval '1 second' else interval '10 seconds' end and now
        or (p_at = p_was_at and p_was_at > now)
    ) is not true then
        perform zone_error('stale');
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
            and coalesce(length(p_note) <= 1000, true)
        )
        and (p_checks = 1 or p_kind = 'coalesced')
        and p_cost between 0 and 1099511627776
        and p_spent between 0 and p_cost
        -- Numbers that programs count.
        and p_zone_limit between 0 and 1099511627776
        and least(p_remaining, p_retry_after_us, p_delay_us) >= 0
        and coalesce(p_level > -9223372036854775808, true)
        and octet_length(p_row_hash) = 32
        and p_txn_id <> '00000000-0000-0000-0000-000000000000'
        and (p_was_seq = 0 or not p_is_new)
        and (p_was_seq = 0) = (p_was_at is null)
        and coalesce(p_at >= p_was_at, true)
        -- It was carried, banned and excepted by then.
        and p_ban_strikes between 0 and p_strikes
        and num_nulls(p_carried, p_carried_at, p_carried_total, p_carried_seq) in (0, 4)
        and coalesce(p_carried between 0 and 4398046511104, true)
        and coalesce(p_carried_total between 0 and v_total, true)
        and coalesce(p_carried_seq between 0 and v_seq, true)
        and coalesce(p_override_seq between 1 and v_seq, true)
        and p_bans >= 0
        and coalesce(least(p_ends_at, p_banned_until, p_carried_at) > c_after, true)
        and coalesce(greatest(p_ends_at, p_banned_until, p_carried_at) < c_before, true)
    ) is not true then
        perform zone_error('append', p_zone_id::text, v_seq::text);
    end if;
    if p_kind = 'unchecked' then
        perform zone_error('closed', p_zone_id::text)
        where not exists (select from zone_version v where v.zone_id = p_zone_id and v.on_outage = 'open');
    end if;

    -- 2. Move the bucket, if it is where it was.
    fate := 1;
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', v_timeout, true);
    end if;
    if p_is_new then
        if exists (select from tallygate_shard)
            and not exists (
                select
                from zone_bucket_lock b
                where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
            )
        then
            -- Fails for one that another database is to begin.
            perform zone_head_new(p_zone_id, p_bucket_key);
        end if;
        begin
            -- As in zone_engine_append, who makes it too is not waited for.
            perform set_config('lock_timeout', '20', true);
            insert into zone_bucket_lock (
                zone_id, bucket_key, seq, last_at, spent_total, level, strikes, banned_until, ban_strikes, carried,
                carried_at, carried_total, carried_seq, override_seq, zone_version, bans, holding, salt, row_hash
            )
            values (
                p_zone_id, p_bucket_key::zone_bucket_key, v_seq, p_at, v_total, p_level, p_strikes, p_banned_until, p_ban_strikes, p_carried,
                p_carried_at, p_carried_total, p_carried_seq, p_override_seq, p_zone_version, p_bans, p_holding, p_salt,
                p_row_hash
            )
            on conflict (zone_id, bucket_key) do nothing;
            v_opened := found;
            perform set_config('lock_timeout', v_timeout, true);
            if not v_opened then
                return;
            end if;
        exception
            when lock_not_available then
                return;
            when check_violation or not_null_violation then
                -- To say which it is.
                perform zone_bucket_open(p_zone_id, p_bucket_key, true);
                raise;
        end;
    else
        if p_skip_locked then
            perform
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
            for no key update skip locked;
            if not found
                and exists (
                    select
                    from zone_bucket_lock b
                    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
                )
            then
                return;
            end if;
        end if;
        loop
            update zone_bucket_lock b
            set seq = v_seq,
                last_at = p_at,
                spent_total = v_total,
                level = p_level,
                strikes = p_strikes,
                banned_until = p_banned_until,
                ban_strikes = p_ban_strikes,
                carried = p_carried,
                carried_at = p_carried_at,
                carried_total = p_carried_total,
                carried_seq = p_carried_seq,
                override_seq = p_override_seq,
                zone_version = p_zone_version,
                bans = p_bans,
                holding = p_holding,
                row_hash = p_row_hash
            where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
                and b.seq = p_was_seq and b.row_hash = p_was_hash and b.spent_total = p_was_total
                and b.last_at is not distinct from p_was_at;
            exit when found;
            -- It may have a ledger and no row.
            if v_opened
                or not exists (select from zone_bucket_removed r where r.zone_id = p_zone_id)
                or exists (
                    select
                    from zone_bucket_lock b
                    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
                )
            then
                return;
            end if;
            perform zone_bucket_open(p_zone_id, p_bucket_key);
            v_opened := true;
        end loop;
        -- A process that did not look whether the transaction was decided before learns it here.
        if p_named and v_seq > 1 then
            perform -- as in zone_engine_hold
            from zone_txn t
            where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
                    = hashtextextended(p_bucket_key, uuid_hash_extended(p_txn_id, p_zone_id))
                and t.bucket_key = p_bucket_key and t.txn_id is not distinct from p_txn_id and t.zone_id is not distinct from p_zone_id
                and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'lease', 'local', 'offer')
            limit 1;
            if found then
                perform zone_error('moved');
            end if;
        end if;
    end if;

    -- 3. The policy, by a statement that began after the lock.
    select z.version, z.durability <> 'relaxed'
    into v_version, v_durable
    from zone_master z
    where z.id = p_zone_id;
    if v_version is distinct from p_zone_version then
        perform zone_error('stale')
        where p_own or not zone_engine_held_by(p_zone_id, p_zone_version, p_at);
    end if;
    if p_own and not v_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;

    -- 4. Write the row.
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent, spent_total, remaining,
        zone_limit, retry_after_us, delay_us, level, strikes, created_at, prev_at, ends_at, member, note, salt, row_hash
    )
    values (
        p_txn_id, p_zone_id, p_zone_version, p_bucket_key, v_seq, p_kind, p_checks, p_blocked, p_reason, p_critical, p_cost, p_spent,
        v_total, p_remaining, p_zone_limit, p_retry_after_us, p_delay_us, p_level, p_strikes, p_at, p_was_at, p_ends_at, p_member,
        p_note, case when v_seq = 1 then p_salt end, p_row_hash
    );
    fate := 0;
end
$$;
