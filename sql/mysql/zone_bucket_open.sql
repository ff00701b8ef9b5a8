-- zone_bucket_open: makes the row of a bucket that has none, and locks it.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the key cannot be stored
drop procedure if exists zone_bucket_open;
create procedure zone_bucket_open(
    in p_zone_id    int,
    in p_bucket_key varchar(4000) character set utf8mb4
)
sql security definer
begin
    declare v_zones   int;
    declare v_message varchar(128);
    if p_bucket_key is null
        or length(p_bucket_key) not between 1 and 255
        or p_bucket_key regexp '[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]'
    then
        set v_message = concat(
            'bucket key of ', coalesce(length(p_bucket_key), 0),
            ' bytes cannot be used; a key is 1 to 255 bytes without control characters'
        );
        signal sqlstate 'TG003' set mysql_errno = 31003, message_text = v_message;
    end if;
    select count(*)
    into v_zones
    from zone_master z
    where z.id = p_zone_id;
    if v_zones = 0 then
        set v_message = concat('there is no zone ', coalesce(p_zone_id, 'null'), '; list them with: tallygate zone list');
        signal sqlstate 'TG001' set mysql_errno = 31001, message_text = v_message;
    end if;
    -- Not insert ignore, which would cut what does not fit and then lock nothing.
    insert into zone_bucket_lock (zone_id, bucket_key)
    values (p_zone_id, cast(p_bucket_key as binary))
    on duplicate key update seq = seq;
end;
