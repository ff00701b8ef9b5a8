-- zone_decide_each: decides N checks, one after the other, in the transaction that is open; not called from outside.
--
-- Arguments  p_checks       as for zone_check_many
--            p_skip_locked  leave out the checks of buckets that somebody else holds
--            p_joined       the transaction is the caller's and may be of any isolation level
--            o_told         the answers, as zone_checks_tell takes them; null when it was killed
-- Locks      the buckets' rows in the byte order of (zone_id, bucket_key), until the transaction ends
-- Errors     those of zone_checks_read and of zone_answer
drop procedure if exists zone_decide_each;
create procedure zone_decide_each(
    in  p_checks      json,
    in  p_skip_locked boolean,
    in  p_joined      boolean,
    out o_told        longtext character set utf8mb4
)
sql security definer
begin
    declare v_epoch          datetime default timestamp'1970-01-01 00:00:00';
    declare v_done           boolean default false;
    declare v_checks         json;
    declare v_left_out       longtext character set ascii;
    declare v_told           longtext character set utf8mb4 default '';
    -- a check
    declare v_position       int;
    declare v_zone_id        int;
    declare v_key            varchar(255) character set utf8mb4;
    declare v_txn_id         binary(16);
    declare v_cost           bigint;
    declare v_recorded       boolean;
    declare v_critical       boolean;
    declare v_member         varchar(255) character set utf8mb4;
    declare v_ttl_us         bigint;
    -- the decision
    declare v_id             bigint;
    declare v_zone_version   int;
    declare v_seq            bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_delay_us       bigint;
    declare v_ends_at        datetime(6);
    declare v_created_at     datetime(6);
    declare v_replayed       boolean;
    declare c_check cursor for
        select j.position, j.zone_id, j.bucket_key, unhex(j.txn), j.cost, j.recorded, j.critical, j.member, j.ttl_us
        from json_table(v_checks, '$[*]' columns (
            position   for ordinality,
            zone_id    int path '$[0]',
            bucket_key varchar(255) character set utf8mb4 path '$[1]',
            txn        varchar(32) character set ascii path '$[2]',
            cost       bigint path '$[3]',
            recorded   int path '$[4]',
            critical   int path '$[5]',
            member     varchar(255) character set utf8mb4 path '$[6]',
            ttl_us     bigint path '$[7]'
        )) j
        order by j.position;
    declare continue handler for not found set v_done = true;

    call zone_checks_read(p_checks, v_checks);
    call zone_checks_hold(v_checks, coalesce(p_skip_locked, false), p_joined, v_left_out);
    if v_checks is null or v_left_out is null then
        call zone_error('killed', null, null, null);
    end if;
    open c_check;
    checks: loop
        fetch c_check into v_position, v_zone_id, v_key, v_txn_id, v_cost, v_recorded, v_critical, v_member, v_ttl_us;
        if v_done then
            leave checks;
        end if;
        if v_recorded and find_in_set(concat(v_zone_id, ':', hex(v_key)), v_left_out) then
            set v_id = null, v_zone_version = null, v_seq = null, v_blocked = null, v_reason = null, v_zone_limit = null,
                v_remaining = null, v_retry_after_us = null, v_delay_us = null, v_ends_at = null, v_created_at = null,
                v_replayed = null;
        else
            call zone_answer(
                v_zone_id, v_key, v_txn_id, v_cost, v_recorded, null, v_critical, v_member, v_ttl_us, p_joined, v_id,
                v_zone_version, v_seq, v_blocked, v_reason, v_zone_limit, v_remaining, v_retry_after_us, v_delay_us,
                v_ends_at, v_created_at, v_replayed
            );
        end if;
        set v_told = concat(
            v_told, if(v_told = '', '', ','),
            json_array(
                v_position, v_id, hex(v_txn_id), v_zone_id, v_zone_version, v_key, v_seq, v_blocked, v_reason, v_cost,
                v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, timestampdiff(microsecond, v_epoch, v_ends_at),
                timestampdiff(microsecond, v_epoch, v_created_at), v_replayed
            )
        );
        set v_done = false;
    end loop;
    close c_check;
    set o_told = v_told;
end;
