-- zone_bucket_mark: marks a bucket of which there is nothing here as another database's; not called from outside.
--
-- Nothing happens in it here any more: whoever asks is told where it is. Of a bucket in use this neither waits for the lock
-- nor changes anything.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_to          the other database, by the name that callers know
--            o_place       the database that has the bucket: that one, or the one that an earlier mark names; null for this one
-- Locks      the bucket's row, see zone_bucket_open, until the transaction ends
-- Errors     those of zone_bucket_open
drop procedure if exists zone_bucket_mark;
create procedure zone_bucket_mark(
    in  p_zone_id    int,
    in  p_bucket_key varchar(4000) character set utf8mb4,
    in  p_to         varchar(64) character set utf8mb4,
    out o_place      varchar(64) character set utf8mb4
)
sql security definer
begin
    declare v_key varbinary(4000) default cast(p_bucket_key as binary);
    declare v_seq bigint;
    declare continue handler for not found begin end;
    set o_place = null;
    select b.seq, b.moved_to
    into v_seq, o_place
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = v_key;
    if v_seq is null or v_seq = 0 or o_place is not null then
        call zone_bucket_open(p_zone_id, p_bucket_key, true);
        select b.seq, b.moved_to
        into v_seq, o_place
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key
        for update;
        if v_seq = 0 and o_place is null then
            update zone_bucket_lock b
            set b.row_hash = unhex(sha2(concat(b.row_hash, cast(p_to as binary)), 256)),
                b.moved_to = p_to,
                b.moved_by = user()
            where b.zone_id = p_zone_id and b.bucket_key = v_key;
            set o_place = p_to;
        end if;
    end if;
end;
