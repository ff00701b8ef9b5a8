-- zone_version_hash: the hash of the first version of a zone that rate_limiting_request makes. Not called from outside.
--
-- The text is told in docs/chain.md. Other versions are made by the library.
--
-- Arguments  p_zone  the zone
--            p_by    who makes it
-- Result     32 bytes
-- Locks      nothing
create function zone_version_hash(p_zone zone_master, p_by text)
returns bytea
language sql
stable
as $$
    select sha256(convert_to(concat_ws(
        '|', encode(sha256(convert_to(concat_ws('|', p_zone.id, p_zone.name), 'UTF8')), 'hex'), p_zone.version,
        p_zone.algorithm, p_zone.rate, p_zone.window_us, p_zone.burst, p_zone.rate_gcd, '', '', '', '', p_zone.reserve,
        p_zone.mode, p_zone.count_blocked::int, '', '', '', '', '', '', p_zone.on_outage, p_zone.running_buckets,
        p_zone.durability, p_zone.blocked_rows, zone_us(p_zone.updated_at),
        encode(sha256(convert_to(p_zone.description, 'UTF8')), 'hex'),
        encode(sha256(convert_to(p_by, 'UTF8')), 'hex'),
        encode(sha256(convert_to(session_user, 'UTF8')), 'hex'), ''
    ), 'UTF8'))
$$;
