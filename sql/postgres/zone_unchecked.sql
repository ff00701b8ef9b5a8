-- zone_unchecked: records a check that passed while the database did not answer; what of zone_mark an application may do.
--
-- Joins the caller's transaction. Once for each transaction that was not decided: the same again is told.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket, 1 to 255 bytes without control characters
--            p_txn_id        the check's transaction
--            p_cost          what it asked for, 0 to 2^40 units, which is noted and not charged
--            p_note          when it passed, and what else is to be known
--            p_lock_wait_ms  as in zone_check
-- Result     one zone_recorded
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG003 a value is out of range; 55P03 the lock was not had in time
create function zone_unchecked(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_cost         bigint,
    p_note         text default null,
    p_lock_wait_ms int  default null
)
returns zone_recorded
language plpgsql
security definer
set search_path from current
as $$
begin
    return zone_mark(
        p_zone_id, p_bucket_key, p_txn_id, 'unchecked', p_cost, p_note => p_note, p_lock_wait_ms => p_lock_wait_ms
    );
end
$$;

-- By the zone's name.
create function zone_unchecked(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_cost         bigint,
    p_note         text default null,
    p_lock_wait_ms int  default null
)
returns zone_recorded
language sql
security definer
set search_path from current
as $$
    select zone_unchecked(zone_number(p_zone), p_bucket_key, p_txn_id, p_cost, p_note, p_lock_wait_ms)
$$;
