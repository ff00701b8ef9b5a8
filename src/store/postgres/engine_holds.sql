select h.now, h.version, h.seq, h.last_at, h.spent_total, h.level, h.strikes, h.zone_version, h.more,
    h.banned_until, h.bans, h.ban_strikes, h.carried, h.carried_at, h.carried_total, h.carried_seq, h.holding,
    h.override_seq, h.rate, h.window_us, h.burst, h.rate_gcd, h.ban_exempt, h.ends_at, h.hold_seqs, h.hold_charged,
    h.hold_amounts, h.hold_ends, h.hold_members, h.total_at, h.total, h.salt, h.row_hash, h.past
from zone_engine_hold($1, $2, $3, $4, $5, $6, $7, $8) h
