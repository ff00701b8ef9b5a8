select d.txn_id, d.zone_version, d.seq, d.blocked, d.reason, d.zone_limit, d.remaining, d.retry_after_us,
    d.delay_us, d.ends_at, d.created_at, d.replayed
from zone_check($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) d
