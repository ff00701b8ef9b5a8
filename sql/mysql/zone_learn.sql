-- zone_learn: what is known of the shapes of requests in a bucket, after one more settlement; not called from outside.
--
-- A moving average whose every sample counts as half of the average at least and as twice at most. A shape that was not
-- settled for 15 minutes is forgotten; beside 32 shapes all further ones share one, which is called *.
--
-- Arguments  p_shapes  what is known, see zone_engine_shapes
--            p_shape   the shape of the request
--            p_cost    what it came to
--            p_now_us  the time, in microseconds since 1970
--            o_shapes  what is known now
-- Locks      nothing
drop procedure if exists zone_learn;
create procedure zone_learn(
    in  p_shapes text character set utf8mb4,
    in  p_shape  varbinary(255),
    in  p_cost   bigint,
    in  p_now_us bigint,
    out o_shapes text character set utf8mb4
)
sql security definer
begin
    declare v_shape   varchar(255) character set utf8mb4 default convert(p_shape using utf8mb4);
    declare v_sample  bigint default greatest(p_cost, 1) * 256;
    declare v_samples bigint;
    declare v_average bigint;
    declare v_apart   int default 0;
    declare v_place   int default 0;
    declare v_entry   text character set utf8mb4;
    declare v_name    varbinary(1000);
    declare v_shared  text character set utf8mb4;
    set o_shapes = '[]';
    while v_place < json_length(p_shapes) do
        set v_entry = json_extract(p_shapes, concat('$[', v_place, ']'));
        set v_name = cast(json_unquote(json_extract(v_entry, '$[0]')) as binary);
        set v_place = v_place + 1;
        if p_now_us - cast(json_extract(v_entry, '$[3]') as signed) < 900000000 then
            if v_name = p_shape then
                set v_samples = cast(json_extract(v_entry, '$[1]') as signed);
                set v_average = cast(json_extract(v_entry, '$[2]') as signed);
            elseif v_name = '*' then
                set v_shared = v_entry;
            else
                set v_apart = v_apart + 1;
                set o_shapes = json_merge_preserve(o_shapes, concat('[', v_entry, ']'));
            end if;
        end if;
    end while;
    if v_samples is null and v_apart >= 32 then
        set v_shape = '*';
        set v_samples = cast(json_extract(v_shared, '$[1]') as signed);
        set v_average = cast(json_extract(v_shared, '$[2]') as signed);
    elseif v_shared is not null then
        set o_shapes = json_merge_preserve(o_shapes, concat('[', v_shared, ']'));
    end if;
    set v_samples = coalesce(v_samples, 0) + 1;
    set v_average = coalesce(v_average, v_sample);
    set v_sample = least(greatest(v_sample, v_average div 2), v_average * 2);
    set v_average = (v_average * (least(v_samples, 8) - 1) + v_sample) div least(v_samples, 8);
    set o_shapes = json_merge_preserve(
        o_shapes, concat('[[', json_quote(v_shape), ',', v_samples, ',', v_average, ',', p_now_us, ']]')
    );
end;
