-- zone_decide_all: decides several limits of one transaction: all pass, or none is spent from; not called from outside.
--
-- Each is decided twice: first to see whether it blocks, then to be recorded, when it is known whether another does.
--
-- Arguments  p_checks  as for zone_check_all
--            p_joined  the transaction is the caller's and may be of any isolation level
--            o_told    the answers, as zone_checks_tell takes them; null when it was killed
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_check_all, but for TG006
drop procedure if exists zone_decide_all;
create procedure zone_decide_all(
    in  p_checks json,
    in  p_joined boolean,
    out o_told   longtext character set utf8mb4
)
sql security definer
begin
    -- When the call began; not the time of the decisions, which is read after the locks.
    declare v_epoch          datetime default timestamp'1970-01-01 00:00:00';
    declare v_done           boolean;
    declare v_clock_us       bigint;
    declare v_now_us         bigint;
    declare v_txn_id         binary(16);
    declare v_txns           int;
    declare v_twice_in       int;
    declare v_checks         json;
    declare v_left_out       longtext character set ascii;
    declare v_told           longtext character set utf8mb4 default '';
    -- The places of those that were decided before, and of those that do not pass.
    declare v_known          longtext character set ascii default '';
    declare v_refused        longtext character set ascii default '';
    declare v_versions       longtext character set ascii default '';
    -- Is any blocked? How many leave a row, and how many did before?
    declare v_any_blocked    boolean default false;
    declare v_past           int default 0;
    declare v_recording      int;
    -- a check
    declare v_position       int;
    declare v_zone_id        int;
    declare v_key            varbinary(255);
    declare v_bucket_key     varchar(4000) character set utf8mb4;
    declare v_cost           bigint;
    declare v_recorded       boolean;
    declare v_critical       boolean;
    declare v_member         varchar(255) character set utf8mb4;
    declare v_ttl_us         bigint;
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
    -- the decision
    declare v_id             bigint;
    declare v_kind           varchar(20) character set ascii;
    declare v_zone_version   int;
    declare v_row_seq        bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_past_cost      bigint;
    declare v_spent          bigint;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_delay_us       bigint;
    declare v_ends_us        bigint;
    declare v_ends_at        datetime(6);
    declare v_created_at     datetime(6);
    declare v_past_member    varbinary(255);
    declare v_ban_us         bigint;
    declare c_check cursor for
        select j.position, j.zone_id, j.bucket_key, j.cost, j.recorded, j.critical, j.member, j.ttl_us
        from json_table(v_checks, '$[*]' columns (
            position   for ordinality,
            zone_id    int path '$[0]',
            bucket_key varchar(255) character set utf8mb4 path '$[1]',
            cost       bigint path '$[3]',
            recorded   int path '$[4]',
            critical   int path '$[5]',
            member     varchar(255) character set utf8mb4 path '$[6]',
            ttl_us     bigint path '$[7]'
        )) j
        order by j.position;
    declare continue handler for not found set v_done = true;

    -- 1. Read, validate and lock.
    call zone_checks_read(p_checks, v_checks);
    select count(distinct j.txn), unhex(min(j.txn)), coalesce(sum(j.recorded), 0),
        min(if(j.nth > 1, j.zone_id, null))
    into v_txns, v_txn_id, v_recording, v_twice_in
    from (
        select j.zone_id, j.txn, j.recorded,
            row_number() over (partition by j.zone_id, cast(j.bucket_key as binary) order by j.position) as nth
        from json_table(v_checks, '$[*]' columns (
            position   for ordinality,
            zone_id    int path '$[0]',
            bucket_key varchar(255) character set utf8mb4 path '$[1]',
            txn        varchar(32) character set ascii path '$[2]',
            recorded   int path '$[4]'
        )) j
    ) j;
    if v_twice_in is not null then
        call zone_error('same bucket', v_twice_in, null, null);
    end if;
    if v_txns > 1 then
        call zone_error('many txns', null, null, null);
    end if;
    call zone_checks_hold(v_checks, false, p_joined, v_left_out);
    if v_checks is null or v_left_out is null then
        call zone_error('killed', null, null, null);
    end if;

    -- 2. The clock, after the locks. Time never moves backwards within a bucket.
    call zone_clock(v_clock_us);
    if v_txn_id is null then
        call zone_txn_id_make(v_clock_us, v_txn_id);
    end if;

    -- 3. The decisions that were made before: of all of them, or of none.
    if v_txns > 0 then
        open c_check;
        looks: loop
            set v_done = false;
            fetch c_check into v_position, v_zone_id, v_bucket_key, v_cost, v_recorded, v_critical, v_member, v_ttl_us;
            if v_done then
                leave looks;
            end if;
            if not v_recorded then
                iterate looks;
            end if;
            set v_key = cast(v_bucket_key as binary);
            select b.seq, timestampdiff(microsecond, v_epoch, b.last_at)
            into v_seq, v_last_us
            from zone_bucket_lock b
            where b.zone_id = v_zone_id and b.bucket_key = v_key
            for update;
            if v_seq = 0 then
                iterate looks;
            end if;
            call zone_txn_find(
                v_zone_id, v_key, v_txn_id, 'check,reserve,coalesced,unchecked,local', v_seq, v_last_us, p_joined, v_id, v_kind,
                v_zone_version, v_row_seq, v_blocked, v_reason, v_past_cost, v_spent, v_zone_limit, v_remaining,
                v_retry_after_us, v_delay_us, v_ends_at, v_created_at, v_past_member
            );
            if v_id is not null then
                if v_kind = 'local' then
                    call zone_error('taken', null, null, null);
                end if;
                if v_past_cost <> v_cost then
                    call zone_error('other cost', hex(v_txn_id), v_past_cost, v_cost);
                end if;
                if v_kind <> 'unchecked' and not (v_past_member <=> v_member) then
                    call zone_error('other member', hex(v_txn_id), null, null);
                end if;
                set v_past = v_past + 1;
                set v_known = concat(v_known, ',', v_position);
                set v_told = concat(
                    v_told, if(v_told = '', '', ','),
                    json_array(
                        v_position, v_id, hex(v_txn_id), v_zone_id, v_zone_version, v_bucket_key, v_row_seq, v_blocked,
                        v_reason, v_cost, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us,
                        timestampdiff(microsecond, v_epoch, v_ends_at),
                        timestampdiff(microsecond, v_epoch, v_created_at), 1
                    )
                );
            end if;
        end loop;
        close c_check;
    end if;
    if v_past > 0 and v_past < v_recording then
        call zone_error('part', hex(v_txn_id), null, null);
    end if;

    -- 4. The checks that block.
    open c_check;
    checks: loop
        set v_done = false;
        fetch c_check into v_position, v_zone_id, v_bucket_key, v_cost, v_recorded, v_critical, v_member, v_ttl_us;
        if v_done then
            leave checks;
        end if;
        if find_in_set(v_position, v_known) then
            iterate checks;
        end if;
        set v_key = cast(v_bucket_key as binary);
        call zone_bucket_hold(
            v_zone_id, v_bucket_key, v_recorded, p_joined, v_seq, v_last_us, v_spent_total, v_level, v_head_version,
            v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq,
            v_override_seq, v_holding, v_salt, v_row_hash
        );
        set v_now_us = greatest(v_clock_us, coalesce(v_last_us, v_clock_us));
        call zone_decide(
            v_zone_id, v_key, v_now_us, p_joined, false, 0, 0, null, null, v_cost, v_critical, v_member, v_ttl_us, false, v_seq,
            v_last_us, v_spent_total, v_level, v_head_version, v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried,
            v_carried_us, v_carried_total, v_carried_seq, v_override_seq, v_holding, v_blocked, v_reason, v_spent,
            v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_us, v_ban_us
        );
        set v_any_blocked = v_any_blocked or v_blocked;
        set v_versions = concat(v_versions, ',', v_position, '=', v_head_version);
        if v_reason not in ('within_limit', 'soft', 'off') then
            set v_refused = concat(v_refused, ',', v_position);
        end if;
    end loop;
    close c_check;

    -- 5. Decide and record. When one is blocked, those that would pass are held back. A row's waits count from its own time,
    --    those of the answer from now.
    open c_check;
    records: loop
        set v_done = false;
        fetch c_check into v_position, v_zone_id, v_bucket_key, v_cost, v_recorded, v_critical, v_member, v_ttl_us;
        if v_done then
            leave records;
        end if;
        if find_in_set(v_position, v_known) then
            iterate records;
        end if;
        set v_key = cast(v_bucket_key as binary);
        call zone_bucket_hold(
            v_zone_id, v_bucket_key, v_recorded, p_joined, v_seq, v_last_us, v_spent_total, v_level, v_head_version,
            v_strikes, v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq,
            v_override_seq, v_holding, v_salt, v_row_hash
        );
        set v_now_us = greatest(v_clock_us, coalesce(v_last_us, v_clock_us));
        call zone_decide(
            v_zone_id, v_key, v_now_us, p_joined, false, 0, 0, null, null, v_cost, v_critical, v_member, v_ttl_us,
            v_any_blocked and not find_in_set(v_position, v_refused), v_seq, v_last_us, v_spent_total, v_level, v_head_version, v_strikes,
            v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total, v_carried_seq, v_override_seq,
            v_holding, v_blocked, v_reason, v_spent, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_us,
            v_ban_us
        );
        if not find_in_set(concat(v_position, '=', v_head_version), v_versions) then
            -- Another policy than that by which it was found whether all pass.
            call zone_error('old snapshot', null, null, null);
        end if;
        set v_id = null;
        if v_recorded then
            call zone_record(
                v_zone_id, v_key, v_txn_id, if(v_ttl_us is null, 'check', 'reserve'), 1, v_blocked, v_reason,
                v_critical, v_cost, v_spent, v_spent_total, v_remaining, v_zone_limit, v_retry_after_us, v_delay_us,
                v_level, v_strikes, null, null, null, v_now_us, v_ends_us, v_member, v_ban_us, v_seq, v_last_us,
                v_head_version, v_banned_us, v_bans, v_ban_strikes, v_carried, v_carried_us, v_carried_total,
                v_carried_seq, v_override_seq, v_holding, v_salt, v_row_hash, v_id
            );
            if v_id is null then
                call zone_error('killed', null, null, null);
            end if;
        end if;
        set v_told = concat(
            v_told, if(v_told = '', '', ','),
            json_array(
                v_position, v_id, hex(v_txn_id), v_zone_id, v_head_version, v_bucket_key,
                if(v_recorded, v_seq + 1, null), v_blocked, v_reason, v_cost, v_zone_limit, v_remaining,
                v_retry_after_us + v_now_us - v_clock_us, v_delay_us + v_now_us - v_clock_us,
                least(v_ends_us, 253402300799999999), v_now_us, 0
            )
        );
    end loop;
    close c_check;
    set o_told = v_told;
end;
