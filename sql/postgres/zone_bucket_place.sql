-- zone_bucket_place: finds a place for a bucket while the list of databases changes.
--
-- Ask the database to which the key belongs now, and then the one that it names, if that is where the key will belong. The
-- first leaves a bucket of which it has nothing to the second, and the second begins it. Of a key that the change does not concern
-- nothing is written.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes without control characters
-- Result     the database that has the bucket, by its name; null for this one
-- Locks      the bucket's row, see zone_bucket_mark, until the transaction ends
-- Errors     TG001 there is no such zone; TG003 the key cannot be stored
create function zone_bucket_place(p_zone_id int, p_bucket_key text)
returns text
language plpgsql
security definer
set search_path from current
as $$
declare
    c_now      constant text := zone_bucket_home(p_bucket_key, false);
    c_will     constant text := zone_bucket_home(p_bucket_key, true);
    v_is_here  boolean;
    v_moved_to text;
begin
    if p_bucket_key is null or octet_length(p_bucket_key) not between 1 and 255 then
        perform zone_error('key', coalesce(octet_length(p_bucket_key), 0)::text);
    end if;
    if c_now is null and c_will is not null then
        return zone_bucket_mark(p_zone_id, p_bucket_key, c_will);
    elsif c_now is not null and c_will is null then
        perform zone_bucket_open(p_zone_id, p_bucket_key, true);
    end if;
    select b.seq > 0, b.moved_to
    into v_is_here, v_moved_to
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    return case when v_is_here then v_moved_to else coalesce(v_moved_to, c_will) end;
end
$$;

-- By the zone's name.
create function zone_bucket_place(p_zone text, p_bucket_key text)
returns text
language sql
security definer
set search_path from current
as $$
    select zone_bucket_place(zone_number(p_zone), p_bucket_key)
$$;
