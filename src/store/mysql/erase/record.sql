-- The zone, what stands in the place of the key, who, why, how many rows.
insert into zone_erasure (zone_id, bucket_key, erased_at, erased_by, note, ledger_rows)
values (?, ?, utc_timestamp(6), ?, ?, ?)
