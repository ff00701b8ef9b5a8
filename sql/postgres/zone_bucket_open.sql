-- zone_bucket_open: makes the row of a bucket that has none.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes without control characters
-- Locks      the new row, until the transaction ends; waits while another transaction inserts it
-- Errors     TG001 there is no such zone; TG003 the key cannot be stored
create function zone_bucket_open(p_zone_id int, p_bucket_key text)
returns void
language plpgsql
security definer
set search_path from current
as $$
declare
    v_salt constant bytea := uuid_send(gen_random_uuid());
begin
    if p_bucket_key is null
        or octet_length(p_bucket_key) not between 1 and 255
        or p_bucket_key ~ '[\u0001-\u001f\u007f-\u009f]'
    then
        perform zone_error('key', coalesce(octet_length(p_bucket_key), 0)::text);
    end if;
    if not exists (select from zone_master z where z.id = p_zone_id) then
        perform zone_error('no zone', p_zone_id::text);
    end if;
    insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash)
    values (p_zone_id, p_bucket_key, v_salt, zone_bucket_hash(v_salt, p_zone_id, p_bucket_key))
    on conflict (zone_id, bucket_key) do nothing;
end
$$;
