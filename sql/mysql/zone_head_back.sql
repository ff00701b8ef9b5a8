-- zone_head_back: the head of a bucket that has no row, as its ledger left it; not called from outside.
--
-- The last row of its ledger says all; where the old rows were removed, the last of those does. Reads stand in derived tables for the
-- reason that zone_engine_ask tells.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            o_*           the head, see zone_bucket_lock; o_seq is 0 when there is no such row
-- Locks      nothing
drop procedure if exists zone_head_back;
create procedure zone_head_back(
    in  p_zone_id      int,
    in  p_bucket_key   varbinary(255),
    out o_seq          bigint,
    out o_last_at      datetime(6),
    out o_spent_total  bigint,
    out o_level        bigint,
    out o_head_version int,
    out o_strikes      bigint,
    out o_salt         binary(16),
    out o_row_hash     binary(32)
)
sql security definer
begin
    declare v_found boolean default true;
    declare continue handler for not found set v_found = false;
    set o_seq = 0;
    select r.seq, r.created_at, r.spent_total, r.level, r.zone_version, r.strikes, r.row_hash
    into o_seq, o_last_at, o_spent_total, o_level, o_head_version, o_strikes, o_row_hash
    from (
        select t.seq, t.created_at, t.spent_total, t.level, t.zone_version, t.strikes, t.row_hash
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.sealed
        order by t.created_at desc, t.seq desc
        limit 1
    ) r;
    if not v_found then
        set v_found = true;
        select d.seq, d.created_at, d.spent_total, d.level, d.zone_version, d.strikes, d.row_hash
        into o_seq, o_last_at, o_spent_total, o_level, o_head_version, o_strikes, o_row_hash
        from zone_txn_dropped d
        where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key;
    end if;
    if not v_found then
        set o_seq = 0;
    else
        set v_found = true;
        select r.salt
        into o_salt
        from (
            select t.salt
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.sealed
            order by t.created_at, t.seq
            limit 1
        ) r;
        if o_salt is null then
            select d.salt
            into o_salt
            from zone_txn_dropped d
            where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key;
        end if;
    end if;
end;
