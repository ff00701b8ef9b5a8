select c.zone_version, c.seq, c.blocked, c.reason, c.zone_limit, c.remaining, c.retry_after_us, c.created_at, c.replayed, c.total as spent_total,
    c.level, c.strikes, c.salt, c.row_hash, c.is_simple
from zone_engine_check($1, $2, $3, $4, $5, $6, $7) c
