-- zone_bucket_open: makes the row of a bucket that has none, as its ledger left it or a new one, and locks it; not
-- called from outside.
--
-- Whether there is such a zone is looked at last: a caller whose snapshot is made by that sees what was committed
-- while it waited for the row.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_away        a new one, too, whose key belongs to another of several databases
-- Locks      the bucket's row and, for a new one, the zone's first version, shared, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the key cannot be stored; TG007 (31007) the caller's
--            snapshot is older than the last removal of a bucket's row in the zone; TG011 (31011) its key belongs to another
--            database
drop procedure if exists zone_bucket_open;
create procedure zone_bucket_open(
    in p_zone_id    int,
    in p_bucket_key varchar(4000) character set utf8mb4,
    in p_away       boolean
)
sql security definer
begin
    declare v_key   varbinary(4000) default cast(p_bucket_key as binary);
    declare v_zones int;
    declare v_seq   bigint;
    declare v_home  varchar(63) character set ascii;
    declare v_removed_at datetime(6);
    declare v_seen_at    datetime(6);
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
        select max(r.removed_at)
        into v_removed_at
        from zone_bucket_removed r
        where r.zone_id = p_zone_id
        lock in share mode;
        if v_removed_at is not null then
            -- A snapshot from before the last removal may hide rows of the ledger, and to read those with a lock would lock the
            -- gap beside them.
            select max(r.removed_at)
            into v_seen_at
            from zone_bucket_removed r
            where r.zone_id = p_zone_id;
            if not v_seen_at <=> v_removed_at then
                call zone_error('old snapshot', null, null, null);
            end if;
            call zone_bucket_back(p_zone_id, v_key);
        end if;
    end if;
    if v_seq = 0 then
        -- The caller's snapshot may still show otherwise: a zone without a row of the ledger may be removed, and its versions go
        -- with it. Its first one never changes, so who changes the zone does not wait.
        select count(*)
        into v_zones
        from zone_version v
        where v.zone_id = p_zone_id and v.version = 1
        lock in share mode;
    else
        select count(*)
        into v_zones
        from zone_master z
        where z.id = p_zone_id;
    end if;
    if v_seq = 0 and not p_away and exists (select 1 from tallygate_shard) and exists (
        -- Made now, and not found in the ledger.
        select 1
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key and b.salt = v_salt
    ) then
        call zone_bucket_home(v_key, false, v_home);
    end if;
    if v_zones = 0 or v_home is not null then
        -- A joined caller may commit what is left of the call.
        delete from zone_bucket_lock
        where zone_id = p_zone_id and bucket_key = v_key and seq = 0;
        if v_zones = 0 then
            call zone_error('no zone', p_zone_id, null, null);
        end if;
        call zone_error('home', v_home, null, null);
    end if;
end;
