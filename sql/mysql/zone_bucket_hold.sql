-- zone_bucket_hold: locks a bucket and reads its head; not called from outside.
--
-- Where the isolation level is not ours to choose, looking for a row that is not there would lock a gap, so there
-- the row is made first. The holds of a bucket are read without locks, for the same reason: a joined caller whose
-- snapshot is older than the bucket's last row must not see a bucket that holds anything.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_recorded    false for a peek, which only looks
--            p_joined      the transaction is the caller's and may be of any isolation level
--            o_*           the head: what the bucket's last row left behind, times in microseconds since 1970
-- Locks      the bucket's row, until the transaction ends; nothing for a peek
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the key cannot be stored; TG007 (31007) the
--            caller's snapshot is too old; TG011 (31011) the bucket was moved, or its key belongs, to another
--            database
drop procedure if exists zone_bucket_hold;
create procedure zone_bucket_hold(
    in  p_zone_id       int,
    in  p_bucket_key    varchar(4000) character set utf8mb4,
    in  p_recorded      boolean,
    in  p_joined        boolean,
    out o_seq           bigint,
    out o_last_us       bigint,
    out o_spent_total   bigint,
    out o_level         bigint,
    out o_head_version  int,
    out o_strikes       bigint,
    out o_banned_us     bigint,
    out o_bans          int,
    out o_ban_strikes   bigint,
    out o_carried       bigint,
    out o_carried_us    bigint,
    out o_carried_total bigint,
    out o_carried_seq   bigint,
    out o_override_seq  bigint,
    out o_holding       boolean,
    out o_salt          binary(16),
    out o_row_hash      binary(32)
)
sql security definer
begin
    declare v_key   varbinary(4000) default cast(p_bucket_key as binary);
    declare v_epoch datetime default timestamp'1970-01-01 00:00:00';
    declare v_found boolean default true;
    declare v_seen  bigint;
    declare v_moved_to    varchar(64) character set utf8mb4;
    declare v_removed     boolean;
    declare v_last_seq    bigint;
    declare v_last_at     datetime(6);
    declare v_spent_total bigint;
    declare v_strikes     bigint;
    declare continue handler for not found set v_found = false;
    if not p_recorded then
        select b.seq, timestampdiff(microsecond, v_epoch, b.last_at), b.spent_total, b.level, b.zone_version,
            b.strikes, timestampdiff(microsecond, v_epoch, b.banned_until), b.bans, b.ban_strikes, b.carried,
            timestampdiff(microsecond, v_epoch, b.carried_at), b.carried_total, b.carried_seq, b.override_seq,
            b.holding, b.salt, b.row_hash, b.moved_to
        into o_seq, o_last_us, o_spent_total, o_level, o_head_version, o_strikes, o_banned_us, o_bans, o_ban_strikes,
            o_carried, o_carried_us, o_carried_total, o_carried_seq, o_override_seq, o_holding, o_salt, o_row_hash,
            v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key;
        if not v_found then
            set o_seq = 0;
            set o_spent_total = 0;
            set o_strikes = 0;
            set o_bans = 0;
            set o_ban_strikes = 0;
            set o_holding = false;
            select count(*) > 0
            into v_removed
            from zone_bucket_removed r
            where r.zone_id = p_zone_id;
            if v_removed then
                call zone_head_back(
                    p_zone_id, v_key, v_last_seq, v_last_at, v_spent_total, o_level, o_head_version, v_strikes,
                    o_salt, o_row_hash
                );
                if v_last_seq > 0 then
                    set o_seq = v_last_seq;
                    set o_last_us = timestampdiff(microsecond, v_epoch, v_last_at);
                    set o_spent_total = v_spent_total;
                    set o_strikes = v_strikes;
                end if;
            end if;
            if o_seq = 0 then
                call zone_bucket_home(v_key, false, v_moved_to);
                if v_moved_to is not null then
                    call zone_error('home', v_moved_to, null, null);
                end if;
            end if;
        end if;
    else
        if p_joined then
            call zone_bucket_open(p_zone_id, p_bucket_key, false);
        end if;
        hold: loop
            set v_found = true;
            select b.seq, timestampdiff(microsecond, v_epoch, b.last_at), b.spent_total, b.level, b.zone_version,
                b.strikes, timestampdiff(microsecond, v_epoch, b.banned_until), b.bans, b.ban_strikes, b.carried,
                timestampdiff(microsecond, v_epoch, b.carried_at), b.carried_total, b.carried_seq, b.override_seq,
                b.holding, b.salt, b.row_hash, b.moved_to
            into o_seq, o_last_us, o_spent_total, o_level, o_head_version, o_strikes, o_banned_us, o_bans,
                o_ban_strikes, o_carried, o_carried_us, o_carried_total, o_carried_seq, o_override_seq, o_holding, o_salt,
                o_row_hash, v_moved_to
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key
            for update;
            if v_found then
                leave hold;
            end if;
            call zone_bucket_open(p_zone_id, p_bucket_key, false);
        end loop;
        if p_joined and o_holding then
            select b.seq
            into v_seen
            from zone_bucket_lock b
            where b.zone_id = p_zone_id and b.bucket_key = v_key;
            if v_seen is null or v_seen < o_seq then
                call zone_error('old snapshot', null, null, null);
            end if;
        end if;
    end if;
    if v_moved_to is not null then
        call zone_error('elsewhere', v_moved_to, null, null);
    end if;
end;
