-- zone_txn_id_make: a name for a transaction that came without one: a version 7 UUID (RFC 9562).
--
-- Result     the name
-- Locks      nothing
create function zone_txn_id_make()
returns uuid
language sql
as $$
    select encode(
        overlay(
            uuid_send(gen_random_uuid())
            placing substring(int8send((floor(extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint << 16) | 28672) for 7)
            from 1
        ),
        'hex'
    )::uuid
$$;
