select l.seq, l.since_us, l.member, l.wants, l.weight, l.band, l.has, l.ends_us
from zone_engine_leases($1, $2) l
