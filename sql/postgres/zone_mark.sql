-- zone_mark: records of a bucket what is no check and no charge: a ban, a limit of its own, and their ends.
--
-- Joins the caller's transaction. The same transaction and kind again is told, and nothing happens.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket, 1 to 255 bytes without control characters
--            p_txn_id        the name of the event, or of the check that passed unchecked
--            p_kind          ban: nothing passes; unban: a ban ends, and those before it are forgotten; override:
--                            another limit than the zone's; override_end; unchecked: a check passed while the
--                            database did not answer, unless the transaction was decided; in a zone of which a
--                            version was open
--            p_cost          unchecked: what the check asked for, 0 to 2^40 units, which is noted and not charged; else
--                            null
--            p_for_us        ban: how long, in microseconds; override: the same, null for ever
--            p_rate, p_window_us, p_burst, p_gcd  override: the limit, as in zone_override; null keeps the zone's,
--                            but for p_gcd, which is then found
--            p_ban_exempt    override: blocked checks do not lead to a ban
--            p_note          why
--            p_actor         who
--            p_lock_wait_ms  as in zone_check
-- Result     one zone_recorded
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 there is no ban or override to end; TG003 a value is out of range;
--            TG005 the ledger lacks rows of the window; 55P03 the lock was not had in time
create function zone_mark(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_kind         text,
    p_cost         bigint  default null,
    p_for_us       bigint  default null,
    p_rate         bigint  default null,
    p_window_us    bigint  default null,
    p_burst        bigint  default null,
    p_gcd          bigint  default null,
    p_ban_exempt   boolean default false,
    p_note         text    default null,
    p_actor        text    default null,
    p_lock_wait_ms int     default null
)
returns zone_recorded
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_check.
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    v_now      timestamptz;
    v_zone     zone_version;
    v_head     zone_bucket_lock;
    v_brought  zone_brought;
    v_next     zone_bucket_lock;
    v_override zone_override;
    v_ends_at  timestamptz;
    v_past     zone_recorded;
begin
    -- 1. Validate.
    if p_kind is null or p_kind not in ('ban', 'unban', 'override', 'override_end', 'unchecked') then
        perform zone_error('kind', p_kind, 'ban, unban, override, override_end or unchecked');
    end if;
    if p_txn_id is null or p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('no txn');
    end if;
    if (p_kind = 'unchecked') <> (p_cost is not null) or p_cost not between 0 and 1099511627776 then
        perform zone_error('cost', p_cost::text);
    end if;
    if p_for_us not between 1 and 315576000000000 or (p_kind = 'ban' and p_for_us is null) then
        perform zone_error('time', p_kind, p_for_us::text);
    end if;
    if p_kind = 'override' and p_rate is null and not coalesce(p_ban_exempt, false) then
        perform zone_error('override');
    end if;
    if length(p_note) > 1000 then
        perform zone_error('text', 'a note', length(p_note)::text);
    end if;
    if length(p_actor) > 1000 then
        perform zone_error('text', 'the name of who does it', length(p_actor)::text);
    end if;

    -- 2. Lock the bucket. 3. The clock, after the lock.
    v_head := zone_bucket_take(p_zone_id, p_bucket_key, p_lock_wait_ms);
    v_now := greatest(pg_catalog.clock_timestamp(), v_head.last_at);

    -- 4. Was it recorded before?
    v_zone := zone_version_now(p_zone_id);
    v_past := zone_recorded_past(
        p_zone_id, p_bucket_key, p_txn_id,
        case when p_kind = 'unchecked' then array['check', 'reserve', 'coalesced', 'unchecked'] else array[p_kind] end
    );
    if v_past.id is not null then
        return v_past;
    end if;

    if p_kind = 'unchecked'
        and not exists (select from zone_version v where v.zone_id = p_zone_id and v.on_outage = 'open')
    then
        perform zone_error('closed', p_zone_id::text);
    end if;

    -- 5. Bring the bucket to now, and change it.
    v_brought := zone_bring(v_zone, v_head, v_now);
    v_next := v_brought.head;
    if p_kind in ('ban', 'override') then
        v_ends_at := zone_time(zone_us(v_now) + p_for_us);
    end if;
    if p_kind = 'ban' then
        v_next.banned_until := v_ends_at;
        v_next.ban_strikes := v_next.strikes;
    elsif p_kind = 'unban' then
        if coalesce(v_next.banned_until <= v_now, true) then
            perform zone_error('no ban');
        end if;
        v_next.banned_until := null;
        v_next.bans := 0;
        v_next.ban_strikes := v_next.strikes;
    elsif p_kind in ('override', 'override_end') then
        if p_kind = 'override' then
            v_override := (
                p_zone_id, p_bucket_key, v_head.seq + 1, p_rate, p_window_us, p_burst,
                coalesce(p_gcd, gcd(p_rate, p_window_us)), coalesce(p_ban_exempt, false), v_ends_at
            )::zone_override;
            perform zone_override_add(v_override);
        elsif v_next.override_seq is null then
            perform zone_error('no override');
        end if;
        v_next.override_seq := v_override.seq;
        v_next := zone_convert(v_next, v_brought.zone, zone_policy(v_zone, v_override), 'as-is', zone_us(v_now));
    end if;
    return zone_happen(
        v_zone, v_head, v_next, v_now, p_txn_id, p_kind, coalesce(p_cost, 0), 0, null, v_ends_at, p_note, p_actor,
        v_override
    );
end
$$;

-- By the zone's name.
create function zone_mark(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_kind         text,
    p_cost         bigint  default null,
    p_for_us       bigint  default null,
    p_rate         bigint  default null,
    p_window_us    bigint  default null,
    p_burst        bigint  default null,
    p_gcd          bigint  default null,
    p_ban_exempt   boolean default false,
    p_note         text    default null,
    p_actor        text    default null,
    p_lock_wait_ms int     default null
)
returns zone_recorded
language sql
security definer
set search_path from current
as $$
    select zone_mark(
        zone_number(p_zone),
        p_bucket_key, p_txn_id, p_kind, p_cost, p_for_us, p_rate, p_window_us, p_burst, p_gcd,
        p_ban_exempt, p_note, p_actor, p_lock_wait_ms
    )
$$;
