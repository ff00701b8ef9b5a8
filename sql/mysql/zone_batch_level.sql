-- zone_batch_level: brings the token buckets of a batch to the time of the decision; not called from outside.
--
-- Locks      of zones that changed since a bucket was decided the versions in between, shared
drop procedure if exists zone_batch_level;
create procedure zone_batch_level()
sql security definer
begin
    declare v_done         boolean default false;
    declare v_tokens       int;
    declare v_carries      int;
    declare v_bucket       int;
    declare v_zone_id      int;
    declare v_head_version int;
    declare v_zone_version int;
    declare v_level        bigint;
    declare v_level_at     datetime(6);
    declare v_now_at       datetime(6);
    declare c_carry cursor for
        select b.bucket, b.zone_id, b.head_version, b.zone_version, b.level, b.level_at, b.now_at
        from zone_batch_bucket b
        where b.per_token is not null and b.head_version < b.zone_version;
    declare continue handler for not found set v_done = true;
    select count(*), sum(b.head_version < b.zone_version)
    into v_tokens, v_carries
    from zone_batch_bucket b
    where b.per_token is not null;
    if v_carries > 0 then
        open c_carry;
        carries: loop
            set v_done = false;
            fetch c_carry into v_bucket, v_zone_id, v_head_version, v_zone_version, v_level, v_level_at, v_now_at;
            if v_done then
                leave carries;
            end if;
            call zone_level_carry(v_zone_id, v_head_version, v_zone_version, v_level, v_level_at, v_now_at);
            update zone_batch_bucket b
            set b.level = v_level,
                b.level_at = v_level_at
            where b.bucket = v_bucket;
        end loop;
        close c_carry;
    end if;
    if v_tokens > 0 then
        update zone_batch_bucket b
        set b.level = case
            when b.level is null
                or b.level >= b.zone_limit * b.per_token
                or timestampdiff(microsecond, b.level_at, b.now_at)
                    >= (b.zone_limit * b.per_token - b.level + (b.per_us - 1)) div b.per_us
            then b.zone_limit * b.per_token
            else b.level + timestampdiff(microsecond, b.level_at, b.now_at) * b.per_us
        end
        where b.per_token is not null;
        update zone_batch_bucket b
        set b.room = b.level div b.per_token
        where b.per_token is not null;
    end if;
end;
