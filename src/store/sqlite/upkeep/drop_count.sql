-- The number of old rows of a zone, of their buckets, and of the rows that a run which was cut off was to remove. ?1
-- the zone, ?2 the time before which they are.
select count(*) as ledger_rows, count(distinct t.bucket_key) as buckets,
    max(
        coalesce((select sum(r.ledger_rows) from zone_removal r where r.zone_id = ?1 and r.kind = 'drop'), 0)
            - coalesce((select sum(d.seq) from zone_txn_dropped d where d.zone_id = ?1), 0),
        0
    ) as told
from zone_txn t
where t.zone_id = ?1 and t.created_at < ?2
