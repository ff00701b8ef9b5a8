-- zone_txn_tail: what few rows of the ledger have, as bytes for zone_txn_bytes. Not called from outside.
--
-- Texts enter by their own hash under the bucket's salt, so that they can be erased and the row still be proven.
--
-- Arguments  p_salt      the bucket's salt
--            p_member, p_note, p_actor, p_login  columns of the row
--            p_override  the limit that the row sets
-- Result     for each of the five: a zero, or a one and its bytes
-- Locks      nothing
create function zone_txn_tail(
    p_salt     bytea,
    p_member   text,
    p_note     text,
    p_actor    text,
    p_login    text,
    p_override zone_override
)
returns bytea
language sql
immutable
as $$
    select coalesce(e'\\x01' || sha256(p_salt || convert_to(p_member, 'UTF8')), e'\\x00')
        || coalesce(e'\\x01' || sha256(p_salt || convert_to(p_note, 'UTF8')), e'\\x00')
        || coalesce(e'\\x01' || sha256(p_salt || convert_to(p_actor, 'UTF8')), e'\\x00')
        || coalesce(e'\\x01' || sha256(p_salt || convert_to(p_login, 'UTF8')), e'\\x00')
        || coalesce(
            e'\\x01' || coalesce(int8send(p_override.rate), e'\\x8000000000000000')
            || coalesce(int8send(p_override.window_us), e'\\x8000000000000000')
            || coalesce(int8send(p_override.burst), e'\\x8000000000000000')
            || coalesce(int8send(p_override.rate_gcd), e'\\x8000000000000000') || boolsend(p_override.ban_exempt),
            e'\\x00'
        )
$$;
