-- zone_bucket_home: the database, of several, to which a key belongs. Not called from outside.
--
-- It follows from their names and the key, see docs/sharding.md.
--
-- Arguments  p_bucket_key  the key
--            p_will        once the list of databases has changed, not now
-- Result     its name; null where it is this one, or where this one is alone
-- Locks      nothing
create function zone_bucket_home(p_bucket_key text, p_will boolean)
returns text
language sql
stable
as $$
    select nullif(h.name, s.name)
    from tallygate_shard s
    cross join lateral (
        select n.name
        from unnest(string_to_array(case when p_will then s.will else s.among end, ' ')) as n (name)
        order by
            substring(
                sha256(set_byte(e'\\x00', 0, octet_length(n.name)) || convert_to(n.name || p_bucket_key, 'UTF8')) from 1 for 8
            ) desc,
            n.name collate "C"
        limit 1
    ) h
$$;
