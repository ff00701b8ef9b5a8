-- zone_happen: records the end of a charge, once: it is given back, or settled; not called from outside.
--
-- It has no say in whether it may: a refund is never refused for want of room.
--
-- Arguments  p_zone_id … p_cost  as for zone_undo
--            p_joined      the transaction is the caller's and may be of any isolation level
--            o_*           the columns of zone_undo's result
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_undo, but for TG006
drop procedure if exists zone_happen;
create procedure zone_happen(
    in  p_zone_id      int,
    in  p_bucket_key   varchar(4000) character set utf8mb4,
    in  p_txn_id       varbinary(100),
    in  p_kind         varchar(20) character set ascii,
    in  p_cost         bigint,
    in  p_joined       boolean,
    out o_id           bigint,
    out o_zone_version int,
    out o_seq          bigint,
    out o_cost         bigint,
    out o_spent        bigint,
    out o_remaining    bigint,
    out o_created_at   datetime(6),
    out o_replayed     boolean
)
sql security definer
happen: begin
    declare v_epoch          datetime default timestamp'1970-01-01 00:00:00';
    declare v_key            varbinary(4000) default cast(p_bucket_key as binary);
    declare v_now_us         bigint;
    declare v_now            datetime(6);
    -- the bucket's head
    declare v_seq            bigint;
    declare v_last_us        bigint;
    declare v_spent_total    bigint;
    declare v_level          bigint;
    declare v_head_version   int;
    declare v_strikes        bigint;
    declare v_banned_us      bigint;
    declare v_bans           int;
    declare v_ban_strikes    bigint;
    declare v_carried        bigint;
    declare v_carried_us     bigint;
    declare v_carried_total  bigint;
    declare v_carried_seq    bigint;
    declare v_override_seq   bigint;
    declare v_holding        boolean;
    declare v_salt           binary(16);
    declare v_row_hash       binary(32);
    -- the charge that ends, or what was recorded before
    declare v_row_kind       varchar(20) character set ascii;
    declare v_row_seq        bigint;
    declare v_row_cost       bigint;
    declare v_row_spent      bigint;
    declare v_row_ends_at    datetime(6);
    declare v_row_at         datetime(6);
    declare v_is_slot        boolean;
    declare v_ended          boolean;
    declare v_back           bigint default 0;
    declare v_back_seq       bigint;
    -- the policy
    declare v_algorithm      varchar(20) character set ascii;
    declare v_window_us      bigint;
    declare v_limit          bigint;
    declare v_per_us         bigint;
    declare v_per_token      bigint;
    declare v_slots          int;
    declare v_calendar       varchar(20) character set ascii;
    -- what can be spent afterwards
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_retry_after_us bigint;
    declare v_delay_us       bigint;
    declare v_ban_us         bigint;
    declare v_member         varbinary(255);
    declare v_peek_level     bigint;
    declare v_peek_spent     bigint;
    declare v_row_ends_us    bigint;
    declare v_given          decimal(65);
    declare v_brought        boolean;

    -- A session that keeps no warning would keep from every handler that nothing was found.
    if @@session.max_error_count = 0 then
        set max_error_count = 64;
    end if;
    -- 1. Validate.
    if length(p_txn_id) <> 16 then
        call zone_error('txn bytes', length(p_txn_id), null, null);
    elseif p_txn_id is null or p_txn_id = repeat(x'00', 16) then
        call zone_error('no txn', null, null, null);
    end if;
    if (p_kind = 'settle') <> (p_cost is not null) or p_cost not between 0 and 1099511627776 then
        call zone_error('cost', p_cost, null, null);
    end if;

    -- 2. Lock the bucket, then the clock. Time never moves backwards within a bucket.
    call zone_bucket_hold(
        p_zone_id, p_bucket_key, true, p_joined, v_seq, v_last_us, v_spent_total, v_level, v_head_version, v_strikes,
        v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq, v_override_seq,
        v_holding, v_salt, v_row_hash
    );
    call zone_clock(v_now_us);
    if v_last_us > v_now_us then
        set v_now_us = v_last_us;
    end if;
    set v_now = date_add(v_epoch, interval v_now_us microsecond);

    -- 3. The record of before is told again.
    call zone_txn_find(
        p_zone_id, v_key, p_txn_id, 'refund,settle,cancel,release', v_seq, v_last_us, p_joined, o_id, v_row_kind, o_zone_version, o_seq, v_blocked, v_reason, o_cost, o_spent,
        v_zone_limit, o_remaining, v_retry_after_us, v_delay_us, v_row_ends_at, o_created_at, v_member
    );
    if o_id is not null then
        if v_row_kind <> p_kind or p_kind = 'settle' and o_cost <> p_cost then
            call zone_error('other end', hex(p_txn_id), v_row_kind, o_cost);
        end if;
        set o_replayed = true;
        leave happen;
    end if;

    -- 4. The policy in force, and the bucket brought to now.
    select greatest(coalesce(max(z.version), 0), coalesce(v_head_version, 0))
    into o_zone_version
    from zone_master z
    where z.id = p_zone_id;
    if o_zone_version = 0 then
        call zone_error('old snapshot', null, null, null);
    end if;
    set v_head_version = coalesce(v_head_version, o_zone_version);
    call zone_bring(
        p_zone_id, v_key, v_now_us, p_joined, o_zone_version, v_seq, v_last_us, v_spent_total, v_level, v_head_version,
        v_carried, v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, v_brought
    );
    if v_brought is null then
        call zone_error('killed', null, null, null);
    end if;
    call zone_policy(
        p_zone_id, v_key, o_zone_version, v_override_seq, v_algorithm, v_window_us, v_limit, v_per_us, v_per_token,
        v_slots, v_calendar
    );

    -- 5. The charge ends.
    set o_cost = coalesce(p_cost, 0);
    set o_spent = 0;
    call zone_txn_find(
        p_zone_id, v_key, p_txn_id, 'check,reserve,unchecked,local', v_seq, v_last_us, p_joined, o_id, v_row_kind,
        v_head_version, v_row_seq, v_blocked, v_reason, v_row_cost, v_row_spent, v_zone_limit, o_remaining,
        v_retry_after_us, v_delay_us, v_row_ends_at, v_row_at, v_member
    );
    set v_is_slot = v_row_ends_at is not null and v_row_kind <> 'reserve' and v_member is null;
    set v_ended = coalesce(v_row_ends_at <= v_now, false);
    case
        when o_id is null then call zone_error('no charge', hex(p_txn_id), null, null);
        when v_row_kind = 'local' then call zone_error('taken', null, null, null);
        when v_blocked then call zone_error('charge blocked', null, null, null);
        when v_row_spent = 0 then call zone_error('charge of nothing', null, null, null);
        when p_kind = 'refund' and v_row_kind = 'reserve' then call zone_error('charge reserved', null, null, null);
        when p_kind = 'refund' and v_is_slot then call zone_error('charge of slot', null, null, null);
        when p_kind in ('settle', 'cancel') and v_row_kind <> 'reserve' then
            call zone_error('charge not reserved', null, null, null);
        when p_kind = 'release' and not v_is_slot then call zone_error('charge of no slot', null, null, null);
        when p_kind <> 'settle' and v_ended then call zone_error('charge over', null, null, null);
        when p_kind <> 'settle' then
            set v_back = v_row_spent;
            set o_cost = v_row_spent;
        else
            -- A reservation that ran out was given back by itself; units that are lacking are charged
            -- without asking for room.
            set v_back = if(v_ended, 0, greatest(v_row_spent - p_cost, 0));
            set o_spent = if(v_ended, p_cost, greatest(p_cost - v_row_spent, 0));
    end case;
    if v_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue') then
        -- Nothing comes back of what a change of policy put something else in place of.
        set v_given = if(v_row_seq <= v_carried_seq, 0, v_back);
        set v_level = least(v_level + v_given * v_per_token, v_limit * v_per_token);
        if o_spent > 0 then
            -- In debt if need be.
            set v_given = o_spent;
            set v_level = greatest(
                coalesce(v_level, v_limit * v_per_token) - v_given * v_per_token,
                v_limit * v_per_token - 9223372036854775807 + v_per_us
            );
        end if;
    end if;
    if v_spent_total > 9223372036854775807 - o_spent then
        call zone_error('total', v_spent_total, o_spent, null);
    end if;
    if not v_ended then
        set v_back_seq = v_row_seq;
        set v_holding = true;
    end if;

    -- 6. The units that can be spent now.
    set v_head_version = o_zone_version;
    set v_peek_level = v_level;
    call zone_decide(
        p_zone_id, v_key, v_now_us, p_joined, true, o_spent, v_back,
        timestampdiff(microsecond, v_epoch, v_row_at), v_back_seq, 0, false, null, null, false, v_seq, v_last_us,
        v_spent_total, v_peek_level, v_head_version, v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried,
        v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, v_blocked, v_reason, v_peek_spent,
        v_zone_limit, o_remaining, v_retry_after_us, v_delay_us, v_row_ends_us, v_ban_us
    );

    -- 7. Record.
    call zone_record(
        p_zone_id, v_key, p_txn_id, p_kind, 1, false, 'recorded', false,
        o_cost, o_spent, v_spent_total + o_spent, o_remaining, v_zone_limit, null, null, v_level, v_strikes,
        timestampdiff(microsecond, v_epoch, v_row_at), v_back, v_back_seq, v_now_us, null,
        if(p_kind = 'settle', v_member, null), null, v_seq, v_last_us, o_zone_version, v_banned_us, v_bans, v_ban_strikes,
        v_carried, v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, v_salt, v_row_hash, o_id
    );
    if o_id is null then
        call zone_error('killed', null, null, null);
    end if;
    set o_seq = v_seq + 1;
    set o_created_at = v_now;
    set o_replayed = false;
end;
