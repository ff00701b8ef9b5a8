-- ?1 the zone, ?2 what stands in the place of the key, ?3 when, ?4 who, ?5 why, ?6 how many rows.
insert into zone_erasure (zone_id, bucket_key, erased_at, erased_by, note, ledger_rows)
values (?1, ?2, ?3, ?4, ?5, ?6)
