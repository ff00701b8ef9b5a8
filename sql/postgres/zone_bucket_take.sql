-- zone_bucket_take: locks one bucket, which is made if it has no row, and reads its head. Not called from outside.
--
-- Arguments  p_zone_id, p_bucket_key, p_lock_wait_ms  as in zone_check
-- Result     the head
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG003 the key cannot be stored; 55P03 the lock was not had in time
create function zone_bucket_take(p_zone_id int, p_bucket_key text, p_lock_wait_ms int)
returns zone_bucket_lock
language plpgsql
as $$
begin
    if p_lock_wait_ms is not null then
        perform set_config('lock_timeout', p_lock_wait_ms::text, true);
    end if;
    return (zone_bucket_hold(array[p_zone_id], array[p_bucket_key], array[true], false))[1];
end
$$;
