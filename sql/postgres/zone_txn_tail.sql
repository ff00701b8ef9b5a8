-- zone_txn_tail: what few rows of the ledger have, as bytes for zone_txn_bytes. Not called from outside.
--
-- Texts enter by their own hash under the bucket's salt, so that they can be erased and the row still be proven.
--
-- Arguments  p_salt      the bucket's salt
--            p_member    of the row
-- Result     of member, note, author, login and override each a zero, or a one and its bytes
-- Locks      nothing
create function zone_txn_tail(p_salt bytea, p_member text)
returns bytea
language sql
immutable
as $$
    select coalesce(e'\\x01' || sha256(p_salt || convert_to(p_member, 'UTF8')), e'\\x00') || e'\\x00000000'
$$;
