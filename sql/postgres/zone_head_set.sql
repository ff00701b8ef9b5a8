-- zone_head_set: moves the head of a bucket. Not called from outside.
--
-- Arguments  p_head  the head
-- Locks      the bucket's row, which the caller holds
create function zone_head_set(p_head zone_bucket_lock)
returns void
language plpgsql
as $$
begin
    update zone_bucket_lock b
    set seq = p_head.seq,
        last_at = p_head.last_at,
        spent_total = p_head.spent_total,
        level = p_head.level,
        strikes = p_head.strikes,
        banned_until = p_head.banned_until,
        ban_strikes = p_head.ban_strikes,
        carried = p_head.carried,
        carried_at = p_head.carried_at,
        carried_total = p_head.carried_total,
        carried_seq = p_head.carried_seq,
        override_seq = p_head.override_seq,
        zone_version = p_head.zone_version,
        bans = p_head.bans,
        holding = p_head.holding,
        row_hash = p_head.row_hash
    where b.zone_id = p_head.zone_id and b.bucket_key = p_head.bucket_key;
end
$$;
