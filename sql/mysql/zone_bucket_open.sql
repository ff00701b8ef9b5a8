-- zone_bucket_open: makes the row of a bucket that has none, as its ledger left it or a new one, and locks it; not
-- called from outside.
--
-- Whether there is such a zone is looked at last: a caller whose snapshot is made by that sees what was committed
-- while it waited for the row.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Locks      the bucket's row and, for a new one, the zone's, shared, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the key cannot be stored
drop procedure if exists zone_bucket_open;
create procedure zone_bucket_open(
    in p_zone_id    int,
    in p_bucket_key varchar(4000) character set utf8mb4
)
sql security definer
begin
    declare v_key   varbinary(4000) default cast(p_bucket_key as binary);
    declare v_zones int;
    declare v_seq   bigint;
    declare v_removed boolean;
    declare v_salt  binary(16) default random_bytes(16);
    if p_bucket_key is null
        or length(p_bucket_key) not between 1 and 255
        or p_bucket_key regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]'
    then
        call zone_error('key', coalesce(length(p_bucket_key), 0), null, null);
    end if;
    if left(v_key, 7) = 'erased:' then
        call zone_error('erased', null, null, null);
    end if;
    if p_zone_id is null then
        call zone_error('no zone', null, null, null);
    end if;
    -- Not insert ignore, which would cut what does not fit and then lock nothing.
    insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash)
    values (
        p_zone_id, v_key, v_salt, unhex(sha2(concat(v_salt, unhex(lpad(hex(p_zone_id), 8, '0')), v_key), 256))
    )
    on duplicate key update seq = zone_bucket_lock.seq;
    -- By locking reads, which see what was committed after a caller's snapshot: the row may have been removed since.
    select b.seq
    into v_seq
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = v_key
    for update;
    if v_seq = 0 then
        select count(*) > 0
        into v_removed
        from zone_bucket_removed r
        where r.zone_id = p_zone_id
        lock in share mode;
        if v_removed then
            call zone_bucket_back(p_zone_id, v_key);
        end if;
    end if;
    if v_seq = 0 then
        -- The caller's snapshot may still show otherwise: a zone without a row of the ledger may be removed.
        select count(*)
        into v_zones
        from zone_master z
        where z.id = p_zone_id
        lock in share mode;
    else
        select count(*)
        into v_zones
        from zone_master z
        where z.id = p_zone_id;
    end if;
    if v_zones = 0 then
        -- A joined caller may commit what is left of the call.
        delete from zone_bucket_lock
        where zone_id = p_zone_id and bucket_key = v_key and seq = 0;
        call zone_error('no zone', p_zone_id, null, null);
    end if;
end;
