-- zone_head_new: the head of a bucket that has no row: as its ledger left it, or that of a new one. Not called from
-- outside.
--
-- In a zone that never had a row of an idle bucket removed, the ledger is not looked at.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_away        a new one, too, whose key belongs to another of several databases
-- Result     the head; of a new bucket without salt and row_hash
-- Locks      nothing
-- Errors     TG011 the bucket is new, and its key belongs to another database
create function zone_head_new(p_zone_id int, p_bucket_key text, p_away boolean default false)
returns zone_bucket_lock
language plpgsql
as $$
declare
    v_head       zone_bucket_lock;
    v_last       record;
    v_is_several boolean;
    v_is_removed boolean;
    v_home       text;
begin
    select exists (select from tallygate_shard), exists (select from zone_bucket_removed r where r.zone_id = p_zone_id)
    into v_is_several, v_is_removed;
    if v_is_several and not p_away then
        v_home := zone_bucket_home(p_bucket_key, false);
    end if;
    v_head.zone_id := p_zone_id;
    v_head.bucket_key := p_bucket_key;
    v_head.seq := 0;
    v_head.spent_total := 0;
    v_head.strikes := 0;
    v_head.ban_strikes := 0;
    v_head.bans := 0;
    v_head.holding := false;
    if not v_is_removed then
        if v_home is not null then
            perform zone_error('home', v_home);
        end if;
        return v_head;
    end if;
    -- The last row; where the old ones were removed, the last of those.
    select l.seq, l.created_at, l.spent_total, l.level, l.strikes, l.zone_version, l.row_hash
    into v_last
    from (
        (
            select t.seq, t.created_at, t.spent_total, t.level, t.strikes, t.zone_version, t.row_hash
            from zone_txn t
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key
            order by t.created_at desc, t.seq desc
            limit 1
        )
        union all
        select d.seq, d.created_at, d.spent_total, d.level, d.strikes, d.zone_version, d.row_hash
        from zone_txn_dropped d
        where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key
    ) l
    order by l.seq desc
    limit 1;
    if found then
        v_head.seq := v_last.seq;
        v_head.last_at := v_last.created_at;
        v_head.spent_total := v_last.spent_total;
        v_head.level := v_last.level;
        v_head.strikes := v_last.strikes;
        v_head.zone_version := v_last.zone_version;
        v_head.row_hash := v_last.row_hash;
        select coalesce(
            (
                select d.salt
                from zone_txn_dropped d
                where d.zone_id = p_zone_id and d.bucket_key = p_bucket_key
            ),
            (
                select t.salt
                from zone_txn t
                where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key
                order by t.created_at, t.seq
                limit 1
            )
        )
        into v_head.salt;
    elsif v_home is not null then
        perform zone_error('home', v_home);
    end if;
    return v_head;
end
$$;
