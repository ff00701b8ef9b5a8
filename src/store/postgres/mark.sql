select r.cost, r.spent, r.remaining, r.ends_at, r.seq, r.zone_version, r.created_at, r.replayed
from zone_mark($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) r
