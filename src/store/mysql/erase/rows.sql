-- The rows of a bucket with hashes in the place of what is personal, see docs/chain.md. The arguments are what stands
-- in the place of the key, the salt four times, the zone, the key.
update zone_txn
set bucket_key = ?,
    member = concat('erased:', sha2(concat(?, member), 256)),
    note = concat('erased:', sha2(concat(?, cast(note as binary)), 256)),
    actor = concat('erased:', sha2(concat(?, cast(actor as binary)), 256)),
    login = concat('erased:', sha2(concat(?, cast(login as binary)), 256)),
    salt = null
where zone_id = ? and bucket_key = ?
