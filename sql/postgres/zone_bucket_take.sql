-- zone_bucket_take: locks one bucket, which is made if it has no row, and reads its head. Not called from outside.
--
-- Arguments  p_zone_id, p_bucket_key, p_lock_wait_ms  as in zone_check
-- Result     the head
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG003 the key cannot be stored; TG011 the bucket was moved, or its key belongs, to another database; 55P03
--            the lock was not had in time
create function zone_bucket_take(p_zone_id int, p_bucket_key text, p_lock_wait_ms int)
returns zone_bucket_lock
language plpgsql
as $$
declare
    v_head zone_bucket_lock;
begin
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    -- One that was removed while this call waited is made again.
    loop
        select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried,
            b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans,
            b.holding, b.bucket_key, b.salt, b.row_hash, b.moved_to
        into v_head
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
        for no key update;
        exit when found;
        v_head := zone_bucket_open(p_zone_id, p_bucket_key);
        exit when v_head.seq is not null;
    end loop;
    if v_head.moved_to is not null then
        perform zone_error('elsewhere', v_head.moved_to);
    end if;
    return v_head;
end
$$;
