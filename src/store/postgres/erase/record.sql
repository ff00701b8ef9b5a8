-- $1 the zone, $2 what stands in the place of the key, $3 who, $4 why, $5 how many rows.
insert into zone_erasure (zone_id, bucket_key, erased_at, erased_by, note, ledger_rows)
values ($1, $2, pg_catalog.clock_timestamp(), $3, $4, $5)
returning erased_at
