select r.cost, r.spent, r.remaining, r.seq, r.zone_version, r.created_at, r.replayed
from zone_undo($1, $2, $3, $4, $5, $6) r
