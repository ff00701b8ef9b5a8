-- zone_batch_level: brings the token buckets of a batch to the time of the decision; not called from outside.
--
-- Locks      nothing
drop procedure if exists zone_batch_level;
create procedure zone_batch_level()
sql security definer
begin
    declare v_tokens int;
    select count(*)
    into v_tokens
    from zone_batch_bucket b
    where b.per_token is not null;
    if v_tokens > 0 then
        update zone_batch_bucket b
        set b.level = case
            when b.level is null
                or timestampdiff(microsecond, b.last_at, b.now_at)
                    >= (b.zone_limit * b.per_token - b.level + (b.per_us - 1)) div b.per_us
            then b.zone_limit * b.per_token
            else b.level + timestampdiff(microsecond, b.last_at, b.now_at) * b.per_us
        end
        where b.per_token is not null;
        update zone_batch_bucket b
        set b.room = b.level div b.per_token
        where b.per_token is not null;
    end if;
end;
