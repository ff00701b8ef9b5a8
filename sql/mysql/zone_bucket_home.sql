-- zone_bucket_home: the database, of several, to which a key belongs; not called from outside.
--
-- It follows from their names and the key, see docs/sharding.md.
--
-- Arguments  p_bucket_key  the key
--            p_will        once the list of databases has changed, not now
--            o_home        its name; null where it is this one, or where this one is alone
-- Locks      nothing
drop procedure if exists zone_bucket_home;
create procedure zone_bucket_home(
    in  p_bucket_key varbinary(4000),
    in  p_will       boolean,
    out o_home       varchar(63) character set ascii
)
sql security definer
begin
    set o_home = (
        select nullif(n.name, s.name)
        from tallygate_shard s
        cross join json_table(
            concat('["', replace(if(p_will, s.will, s.among), ' ', '","'), '"]'),
            '$[*]' columns (name varchar(63) character set ascii path '$')
        ) n
        order by
            left(sha2(concat(unhex(lpad(hex(length(n.name)), 2, '0')), cast(n.name as binary), p_bucket_key), 256), 16) desc,
            cast(n.name as binary)
        limit 1
    );
end;
