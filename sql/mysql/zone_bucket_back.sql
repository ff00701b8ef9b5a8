-- zone_bucket_back: gives the row of a bucket that was just made the head that its ledger left; not called from outside.
--
-- A bucket that has no ledger stays new.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
-- Locks      the bucket's row, which the caller holds
drop procedure if exists zone_bucket_back;
create procedure zone_bucket_back(in p_zone_id int, in p_bucket_key varbinary(255))
sql security definer
begin
    declare v_seq          bigint;
    declare v_last_at      datetime(6);
    declare v_spent_total  bigint;
    declare v_level        bigint;
    declare v_head_version int;
    declare v_strikes      bigint;
    declare v_salt         binary(16);
    declare v_row_hash     binary(32);
    call zone_head_back(
        p_zone_id, p_bucket_key, v_seq, v_last_at, v_spent_total, v_level, v_head_version, v_strikes, v_salt, v_row_hash
    );
    if v_seq > 0 then
        update zone_bucket_lock b
        set b.seq = v_seq,
            b.last_at = v_last_at,
            b.spent_total = v_spent_total,
            b.level = v_level,
            b.zone_version = v_head_version,
            b.strikes = v_strikes,
            b.salt = v_salt,
            b.row_hash = v_row_hash
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key and b.seq = 0;
    end if;
end;
