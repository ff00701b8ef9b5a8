-- zone_head_new: the head of a bucket that has no row. Not called from outside.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
-- Result     the head
-- Locks      nothing
create function zone_head_new(p_zone_id int, p_bucket_key text)
returns zone_bucket_lock
language plpgsql
as $$
declare
    v_head zone_bucket_lock;
begin
    v_head.zone_id := p_zone_id;
    v_head.bucket_key := p_bucket_key;
    v_head.seq := 0;
    v_head.spent_total := 0;
    v_head.strikes := 0;
    v_head.ban_strikes := 0;
    v_head.bans := 0;
    v_head.holding := false;
    return v_head;
end
$$;
