-- zone_txn_bytes: what a row of the ledger says that a routine writes, as bytes. Not called from outside.
--
-- The row's hash is SHA-256 over the hash of the row before it in the bucket, of the first over zone_bucket_hash, and
-- these bytes. They are told one by one in docs/chain.md. A number that is missing is the least bigint.
--
-- Arguments  columns of the row
-- Result     the bytes
-- Locks      nothing
create function zone_txn_bytes(
    p_txn_id         uuid,
    p_seq            bigint,
    p_zone_version   int,
    p_blocked        boolean,
    p_cost           bigint,
    p_spent          bigint,
    p_spent_total    bigint,
    p_remaining      bigint,
    p_zone_limit     bigint,
    p_retry_after_us bigint,
    p_level          bigint,
    p_strikes        bigint,
    p_target_at      timestamptz,
    p_created_at     timestamptz,
    p_kind           text,
    p_reason         text
)
returns bytea
language sql
stable
as $$
    -- It stands for one check that is not critical, and tells neither a delay nor an end, a member, a note, an actor, a login or an override.
    select uuid_send(p_txn_id) || int8send(p_seq) || int4send(p_zone_version) || e'\\x00000001'
        || boolsend(p_blocked) || e'\\x00' || int8send(p_cost) || int8send(p_spent)
        || int8send(p_spent_total) || int8send(p_remaining) || int8send(p_zone_limit)
        || coalesce(int8send(p_retry_after_us), e'\\x8000000000000000') || e'\\x8000000000000000'
        || coalesce(int8send(p_level), e'\\x8000000000000000') || int8send(p_strikes)
        -- A timestamp is sent as microseconds since 2000; moved by thirty years it is one since 1970.
        || coalesce(timestamptz_send(p_target_at + interval '946684800 seconds'), e'\\x8000000000000000')
        || timestamptz_send(p_created_at + interval '946684800 seconds') || e'\\x8000000000000000'
        || convert_to(p_kind || '|' || p_reason, 'UTF8') || e'\\x0000000000'
$$;
