-- The next removals of a zone, in order. The number is written here and not given, as in lines.sql.
select r.seq, r.kind, r.removed_at, r.cut_at, r.bucket_key, r.buckets, r.ledger_rows, r.actor, r.login, r.note, r.row_hash
from zone_removal_view r
where r.zone_id = ? and r.seq > ?
order by r.seq
limit 1000
