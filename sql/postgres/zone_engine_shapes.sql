-- zone_engine_shapes: what is known of the shapes of requests in a bucket, for a process that predicts what one will cost.
--
-- Arguments  p_zone_id, p_bucket_key  the bucket
-- Result     a list of [name, samples, average in 256ths of a unit, microseconds since 1970]; null where nothing is known
-- Locks      nothing
create function zone_engine_shapes(p_zone_id int, p_bucket_key text)
returns text
language sql
stable
security definer
set search_path from current
as $$
    select b.shapes
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
$$;
