-- zone_checks_read: reads the checks of a call; not called from outside.
--
-- Arguments  p_checks  as for zone_check_many
--            o_checks  the same with the zones by their numbers, for the routines that decide:
--                      [[zone, key, transaction in hex, cost, 1 where it leaves a row, critical, member, ttl], …]; null when
--                      it was killed
-- Locks      zones that are named by their names, shared, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) a value is out of range
drop procedure if exists zone_checks_read;
create procedure zone_checks_read(in p_checks json, out o_checks json)
sql security definer
begin
    declare v_done      boolean default false;
    declare v_read      longtext character set utf8mb4 default '';
    declare v_zone      varchar(1000) character set utf8mb4;
    declare v_zone_id   int;
    declare v_key       varchar(4000) character set utf8mb4;
    declare v_txn       varchar(4000) character set utf8mb4;
    declare v_cost_text varchar(40) character set utf8mb4;
    declare v_cost      bigint;
    declare v_record    boolean;
    declare v_critical  boolean;
    declare v_member    varchar(4000) character set utf8mb4;
    declare v_ttl_text  varchar(40) character set utf8mb4;
    declare v_ttl_us    bigint;
    declare c_check cursor for
        select j.zone, j.bucket_key, j.txn, j.cost, coalesce(j.record, false), coalesce(j.critical, false), j.member,
            j.ttl_us
        from json_table(p_checks, '$[*]' columns (
            position   for ordinality,
            zone       varchar(1000) character set utf8mb4 path '$.zone_id',
            bucket_key varchar(4000) character set utf8mb4 path '$.key',
            txn        varchar(4000) character set utf8mb4 path '$.txn',
            cost       varchar(40) character set utf8mb4 path '$.cost',
            record     boolean path '$.record',
            critical   boolean path '$.critical',
            member     varchar(4000) character set utf8mb4 path '$.member',
            ttl_us     varchar(40) character set utf8mb4 path '$.ttl_us'
        )) j
        order by j.position;
    declare continue handler for not found set v_done = true;

    -- A session that keeps no warning would keep from every handler that nothing was found.
    if @@session.max_error_count = 0 then
        set max_error_count = 64;
    end if;
    if not coalesce(json_type(p_checks) = 'ARRAY', false) then
        call zone_error('no array', coalesce(json_type(p_checks), 'null'), null, null);
    end if;
    open c_check;
    checks: loop
        fetch c_check into v_zone, v_key, v_txn, v_cost_text, v_record, v_critical, v_member, v_ttl_text;
        if v_done then
            leave checks;
        end if;
        -- A number that is none, or no whole one, would be taken for another.
        set v_cost = if(v_cost_text regexp '^-?[0-9]+$', cast(v_cost_text as signed), null);
        set v_ttl_us = if(v_ttl_text regexp '^-?[0-9]+$', cast(v_ttl_text as signed), if(v_ttl_text is null, null, 0));
        if v_key is null or length(v_key) not between 1 and 255 then
            call zone_error('key', coalesce(length(v_key), 0), null, null);
        elseif left(v_key, 7) = 'erased:' then
            call zone_error('erased', null, null, null);
        elseif v_txn regexp '[^0-9A-Fa-f-]' or length(replace(v_txn, '-', '')) <> 32 then
            call zone_error('txn', null, null, null);
        elseif v_cost is null or v_cost not between 0 and 1099511627776 then
            call zone_error('cost', v_cost_text, null, null);
        elseif length(v_member) not between 1 and 255 or v_member regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]' then
            call zone_error('member bytes', length(v_member), null, null);
        elseif v_ttl_us not between 1 and 315576000000000 then
            call zone_error('time', 'a reservation', v_ttl_us, null);
        elseif v_ttl_us is not null and v_cost = 0 then
            call zone_error('reserve', null, null, null);
        elseif replace(v_txn, '-', '') = repeat('0', 32) then
            call zone_error('nil txn', null, null, null);
        end if;
        call zone_number(v_zone, v_zone_id);
        set v_read = concat(
            v_read, if(v_read = '', '', ','),
            json_array(
                v_zone_id, v_key, replace(v_txn, '-', ''), v_cost, if(v_cost > 0 or v_record, 1, 0), if(v_critical, 1, 0),
                v_member, v_ttl_us
            )
        );
    end loop;
    close c_check;
    set o_checks = concat('[', v_read, ']');
end;
