-- zone_bucket_leave: leaves a bucket of which there is nothing here to another database.
--
-- Nothing happens in it here any more: whoever asks is told where it is. Of a bucket in use this neither waits for the lock
-- nor changes anything.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes without control characters
--            p_to          the other database, by the name that callers know: 1 to 64 characters
-- Result     1 when it is left to that one, now or before; 0 when it is here
-- Locks      the bucket's row, see zone_bucket_open, until the transaction ends
-- Errors     TG001 there is no such zone; TG003 a value is out of range; TG011 it was moved to yet another database
create function zone_bucket_leave(p_zone_id int, p_bucket_key text, p_to text)
returns int
language plpgsql
security definer
set search_path from current
as $$
declare
    v_seq      bigint;
    v_moved_to text;
begin
    if p_to is null or char_length(p_to) not between 1 and 64 then
        perform zone_error('place', coalesce(char_length(p_to), 0)::text);
    end if;
    select b.seq, b.moved_to
    into v_seq, v_moved_to
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    if v_seq > 0 and v_moved_to is null then
        return 0;
    end if;
    loop
        perform zone_bucket_open(p_zone_id, p_bucket_key);
        select b.seq, b.moved_to
        into v_seq, v_moved_to
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
        for no key update;
        exit when found;
    end loop;
    if v_moved_to = p_to then
        return 1;
    end if;
    if v_moved_to is not null then
        perform zone_error('elsewhere', v_moved_to);
    end if;
    if v_seq > 0 then
        return 0;
    end if;
    update zone_bucket_lock b
    set moved_to = p_to,
        row_hash = sha256(b.row_hash || convert_to(p_to, 'UTF8'))
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    return 1;
end
$$;

-- By the zone's name.
create function zone_bucket_leave(p_zone text, p_bucket_key text, p_to text)
returns int
language sql
security definer
set search_path from current
as $$
    select zone_bucket_leave(zone_number(p_zone), p_bucket_key, p_to)
$$;
