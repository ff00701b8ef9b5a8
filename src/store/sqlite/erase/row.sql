-- A row with hashes in the place of what is personal, see docs/chain.md. ?1 the row, ?2 the key, ?3 the member, ?4 the note,
-- ?5 the author.
update zone_txn
set bucket_key = ?2,
    member = ?3,
    note = ?4,
    actor = ?5,
    salt = null
where id = ?1
