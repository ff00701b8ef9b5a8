-- zone_learn: what is known of the shapes of requests in a bucket, after one more settlement. Not called from outside.
--
-- A moving average whose every sample counts as half of the average at least and as twice at most. A shape that was not
-- settled for 15 minutes is forgotten; beside 32 shapes all further ones share one, which is called *.
--
-- Arguments  p_shapes  what is known, see zone_engine_shapes
--            p_shape   the shape of the request
--            p_cost    what it came to
--            p_now_us  the time, in microseconds since 1970
-- Result     what is known now
-- Locks      nothing
create function zone_learn(p_shapes text, p_shape text, p_cost bigint, p_now_us bigint)
returns text
language plpgsql
as $$
declare
    v_sample  bigint := greatest(p_cost, 1) * 256;
    v_shapes  jsonb;
    v_shape   text;
    v_known   jsonb;
    v_samples bigint;
    v_average bigint;
begin
    select coalesce(jsonb_agg(s.value order by s.place), '[]')
    into v_shapes
    from jsonb_array_elements(coalesce(p_shapes, '[]')::jsonb) with ordinality as s (value, place)
    where p_now_us - (s.value ->> 3)::bigint < 900000000;
    select case
        when count(*) filter (where s.value ->> 0 = p_shape) > 0 or count(*) filter (where s.value ->> 0 <> '*') < 32 then p_shape
        else '*'
    end
    into v_shape
    from jsonb_array_elements(v_shapes) as s (value);
    select s.value
    into v_known
    from jsonb_array_elements(v_shapes) as s (value)
    where s.value ->> 0 = v_shape;
    v_samples := coalesce((v_known ->> 1)::bigint, 0) + 1;
    v_average := coalesce((v_known ->> 2)::bigint, v_sample);
    v_sample := least(greatest(v_sample, v_average / 2), v_average * 2);
    v_average := (v_average * (least(v_samples, 8) - 1) + v_sample) / least(v_samples, 8);
    select coalesce(jsonb_agg(s.value order by s.place), '[]')
        || jsonb_build_array(jsonb_build_array(v_shape, v_samples, v_average, p_now_us))
    into v_shapes
    from jsonb_array_elements(v_shapes) with ordinality as s (value, place)
    where s.value ->> 0 <> v_shape;
    return v_shapes::text;
end
$$;
