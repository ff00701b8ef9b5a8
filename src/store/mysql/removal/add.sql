-- The columns in this order; the table writes down who is logged in.
insert into zone_removal (
    zone_id, seq, kind, removed_at, cut_at, bucket_key, buckets, ledger_rows, actor, note, row_hash
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
