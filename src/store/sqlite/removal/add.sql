-- The columns in this order; the table writes down who is logged in.
insert into zone_removal (
    zone_id, seq, kind, removed_at, cut_at, bucket_key, buckets, ledger_rows, actor, note, row_hash
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
