-- zone_batch_read: reads the checks of a batch into temporary tables; not called from outside.
--
-- The text is parsed once. Beside what the caller wrote, zone_batch_check says of each check which bucket it is
-- of (numbered in the byte order of zone and key), the how many-th of it, the how many-th of its transaction in
-- it, and whether it appends a row.
--
-- Arguments  p_checks  as for zone_check_many
-- Locks      nothing
-- Errors     TG003 (31003) a value is out of range
drop procedure if exists zone_batch_read;
create procedure zone_batch_read(in p_checks json)
sql security definer
begin
    declare v_position  int;
    declare v_key_bytes int;
    declare v_key_start varbinary(7);
    declare v_txn_bytes int;
    declare v_cost      bigint;
    declare v_ttl_us    bigint;
    declare v_member    varbinary(255);

    if not coalesce(json_type(p_checks) = 'ARRAY', false) then
        call zone_error('no array', coalesce(json_type(p_checks), 'null'), null, null);
    end if;
    call zone_batch_open();
    insert into zone_batch_check (
        position, bucket, nth, nth_of_txn, appends, recorded, zone_id, bucket_key, key_bytes, txn_id, txn_bytes,
        cost, critical, member, ttl_us
    )
    select r.position, r.bucket, r.nth, r.nth_of_txn, r.recorded and (r.txn is null or r.nth_of_txn = 1), r.recorded,
        r.zone_id, left(r.bucket_key, 255), r.key_bytes, left(r.txn, 16), length(r.txn), r.cost,
        r.critical, r.member, r.ttl_us
    from (
        select c.position, c.zone_id, c.bucket_key, c.key_bytes, c.txn, c.cost, c.recorded, c.critical,
            c.member, c.ttl_us,
            dense_rank() over (order by c.zone_id, c.bucket_key) as bucket,
            row_number() over (partition by c.zone_id, c.bucket_key order by c.position) as nth,
            row_number() over (
                partition by c.zone_id, c.bucket_key, c.txn, c.recorded
                order by c.position
            ) as nth_of_txn
        from (
            -- No longer than they need to be: what is sorted takes its longest length.
            select j.position,
                if(j.zone_text regexp '^[0-9]+$', j.zone_id, (
                    select z.id from zone_master z
                    where z.name = j.zone_text collate utf8mb4_bin and char_length(z.name) = char_length(j.zone_text)
                )) as zone_id,
                left(cast(coalesce(j.bucket_key, '') as binary), 256) as bucket_key,
                coalesce(length(j.bucket_key), 0) as key_bytes,
                case
                    when j.txn is null then null
                    -- In an insert unhex fails by itself, with another error than ours.
                    when j.txn regexp '[^0-9A-Fa-f-]' then ''
                    else left(unhex(replace(j.txn, '-', '')), 17)
                end as txn,
                -- A number that is none, or no whole one, would be taken for another.
                if(j.cost_text regexp '^-?[0-9]+$', j.cost, null) as cost,
                coalesce(j.cost > 0, false) or coalesce(j.record, false) as recorded,
                coalesce(j.critical, false) as critical, if(j.ttl_text not regexp '^-?[0-9]+$', 0, j.ttl_us) as ttl_us,
                -- What cannot be one is refused as if it were empty.
                left(if(
                    length(j.member) > 255 or j.member regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]', '',
                    cast(j.member as binary)
                ), 255) as member
            from json_table(p_checks, '$[*]' columns (
                position   for ordinality,
                zone_id    int path '$.zone_id',
                zone_text  varchar(1000) character set utf8mb4 path '$.zone_id',
                bucket_key varchar(4000) character set utf8mb4 path '$.key',
                txn        varchar(4000) character set utf8mb4 path '$.txn',
                cost       bigint path '$.cost',
                cost_text  varchar(40) character set utf8mb4 path '$.cost',
                record     boolean path '$.record',
                critical   boolean path '$.critical',
                member     varchar(4000) character set utf8mb4 path '$.member',
                ttl_us     bigint path '$.ttl_us',
                ttl_text   varchar(40) character set utf8mb4 path '$.ttl_us'
            )) j
        ) c
    ) r;

    select min(c.position)
    into v_position
    from zone_batch_check c
    where c.key_bytes not between 1 and 255
        or left(c.bucket_key, 7) = 'erased:'
        or c.cost is null
        or c.cost not between 0 and 1099511627776
        or c.txn_bytes <> 16
        or c.txn_id = repeat(x'00', 16)
        or length(c.member) = 0
        or c.ttl_us not between 1 and 315576000000000
        or c.ttl_us is not null and c.cost = 0;
    if v_position is not null then
        select c.key_bytes, left(c.bucket_key, 7), c.txn_bytes, c.cost, c.member, c.ttl_us
        into v_key_bytes, v_key_start, v_txn_bytes, v_cost, v_member, v_ttl_us
        from zone_batch_check c
        where c.position = v_position;
        if v_key_bytes not between 1 and 255 then
            call zone_error('key', v_key_bytes, null, null);
        elseif v_key_start = 'erased:' then
            call zone_error('erased', null, null, null);
        elseif v_txn_bytes <> 16 then
            call zone_error('txn', null, null, null);
        elseif v_cost is null or v_cost not between 0 and 1099511627776 then
            call zone_error(
                'cost', left(json_unquote(json_extract(p_checks, concat('$[', v_position - 1, '].cost'))), 40), null, null
            );
        elseif length(v_member) = 0 then
            call zone_error('member bytes', 'other', null, null);
        elseif v_ttl_us not between 1 and 315576000000000 then
            call zone_error('time', 'a reservation', v_ttl_us, null);
        elseif v_ttl_us is not null and v_cost = 0 then
            call zone_error('reserve', null, null, null);
        else
            call zone_error('nil txn', null, null, null);
        end if;
    end if;
end;
