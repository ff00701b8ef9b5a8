-- The rows of a bucket with hashes in the place of what is personal, see docs/chain.md. $1 the zone, $2 the key, $3 what
-- stands in its place, $4 the salt.
update zone_txn
set bucket_key = $3,
    member = 'erased:' || encode(sha256($4 || convert_to(member, 'UTF8')), 'hex'),
    note = 'erased:' || encode(sha256($4 || convert_to(note, 'UTF8')), 'hex'),
    actor = 'erased:' || encode(sha256($4 || convert_to(actor, 'UTF8')), 'hex'),
    login = 'erased:' || encode(sha256($4 || convert_to(login, 'UTF8')), 'hex'),
    salt = null
where zone_id = $1 and bucket_key = $2
