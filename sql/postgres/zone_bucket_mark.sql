-- zone_bucket_mark: marks a bucket of which there is nothing here as another database's. Not called from outside.
--
-- Nothing happens in it here any more: whoever asks is told where it is. Of a bucket in use this neither waits for the lock
-- nor changes anything.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_to          the other database, by the name that callers know
-- Result     the database that has the bucket: that one, or the one that an earlier mark names; null for this one
-- Locks      the bucket's row, see zone_bucket_open, until the transaction ends
-- Errors     those of zone_bucket_open
create function zone_bucket_mark(p_zone_id int, p_bucket_key text, p_to text)
returns text
language plpgsql
as $$
declare
    v_seq      bigint;
    v_moved_to text;
begin
    select b.seq, b.moved_to
    into v_seq, v_moved_to
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    if v_seq > 0 and v_moved_to is null then
        return null;
    end if;
    loop
        perform zone_bucket_open(p_zone_id, p_bucket_key, true);
        select b.seq, b.moved_to
        into v_seq, v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
        for no key update;
        exit when found;
    end loop;
    if v_seq > 0 or v_moved_to is not null then
        return v_moved_to;
    end if;
    update zone_bucket_lock b
    set moved_to = p_to,
        moved_by = session_user,
        row_hash = sha256(b.row_hash || convert_to(p_to, 'UTF8'))
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    return p_to;
end
$$;
