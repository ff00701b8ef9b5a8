-- zone_engine_shapes: what is known of the shapes of requests in a bucket, for a process that predicts what one will cost.
--
-- Arguments  p_zone_id, p_bucket_key  the bucket
-- Result     a list of [name, samples, average in 256ths of a unit, microseconds since 1970]; null where nothing is known, and no
--            row where there is no such bucket. The last row, whole, says that these are all
-- Locks      nothing
drop procedure if exists zone_engine_shapes;
create procedure zone_engine_shapes(in p_zone_id int, in p_bucket_key varbinary(4000))
sql security definer
begin
    select b.shapes
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    select true as whole;
end;
