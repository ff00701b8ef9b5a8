-- zone_bucket_open: makes the row of a bucket that has none: as its ledger left it, see zone_head_new, or a new one.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, 1 to 255 bytes without control characters
--            p_away        a new one, too, whose key belongs to another of several databases
-- Result     the head; null where another transaction made the row meanwhile
-- Locks      the new row, and but under READ COMMITTED and on Citus the zone's against its removal, until the transaction
--            ends; waits while another transaction inserts it
-- Errors     TG001 there is no such zone; TG003 the key cannot be stored; TG011 its key belongs to another database
create function zone_bucket_open(p_zone_id int, p_bucket_key text, p_away boolean default false)
returns zone_bucket_lock
language plpgsql
security definer
set search_path from current
as $$
declare
    v_head  zone_bucket_lock;
    v_locks boolean := current_setting('transaction_isolation') <> 'read committed';
begin
    if p_bucket_key is null
        or octet_length(p_bucket_key) not between 1 and 255
        or p_bucket_key ~ '[\u0001-\u001f\u007f-\u009f]'
    then
        perform zone_error('key', coalesce(octet_length(p_bucket_key), 0)::text);
    end if;
    if starts_with(p_bucket_key, 'erased:') then
        perform zone_error('erased');
    end if;
    if v_locks and to_regclass('pg_catalog.pg_dist_partition') is not null then
        -- Of two who lock a row of a table that is on every node, Citus lets each wait for the other.
        v_locks := not exists (
            select
            from pg_catalog.pg_dist_partition p
            where p.logicalrelid = 'zone_master'::regclass
        );
    end if;
    if v_locks then
        -- Where an old snapshot still shows a zone that was removed since, this lock fails.
        perform from zone_master z where z.id = p_zone_id for key share;
    else
        perform from zone_master z where z.id = p_zone_id;
    end if;
    if not found then
        perform zone_error('no zone', p_zone_id::text);
    end if;
    v_head := zone_head_new(p_zone_id, p_bucket_key, p_away);
    if v_head.seq = 0 then
        v_head.salt := uuid_send(gen_random_uuid());
        v_head.row_hash := zone_bucket_hash(v_head.salt, p_zone_id, p_bucket_key);
    end if;
    insert into zone_bucket_lock (
        zone_id, bucket_key, seq, last_at, spent_total, level, strikes, zone_version, salt, row_hash
    )
    values (
        p_zone_id, p_bucket_key, v_head.seq, v_head.last_at, v_head.spent_total, v_head.level, v_head.strikes,
        v_head.zone_version, v_head.salt, v_head.row_hash
    )
    on conflict (zone_id, bucket_key) do nothing
    returning *
    into v_head;
    return v_head;
end
$$;
