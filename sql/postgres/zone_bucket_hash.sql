-- zone_bucket_hash: the hash that a bucket's ledger begins with. Not called from outside.
--
-- The bytes are told in docs/chain.md.
--
-- Arguments  p_salt        the bucket's salt
--            p_zone_id     the zone
--            p_bucket_key  the bucket
-- Result     32 bytes
-- Locks      nothing
create function zone_bucket_hash(p_salt bytea, p_zone_id int, p_bucket_key text)
returns bytea
language sql
immutable
as $$
    select sha256(p_salt || int4send(p_zone_id) || convert_to(p_bucket_key, 'UTF8'))
$$;
