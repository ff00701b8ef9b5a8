select p.place, (p.ledger).id, (p.ledger).txn_id, (p.ledger).zone_version, (p.ledger).seq,
    (p.ledger).kind::text as kind, (p.ledger).checks::int as checks, (p.ledger).blocked, (p.ledger).reason,
    (p.ledger).critical, (p.ledger).band, (p.ledger).cost, (p.ledger).spent, (p.ledger).spent_total, (p.ledger).remaining,
    (p.ledger).zone_limit, (p.ledger).retry_after_us, (p.ledger).delay_us, (p.ledger).level, (p.ledger).strikes,
    (p.ledger).target_at, (p.ledger).created_at, (p.ledger).prev_at, (p.ledger).ends_at, (p.ledger).member,
    (p.ledger).note, (p.ledger).actor, (p.ledger).login, (p.ledger).salt, (p.ledger).row_hash
from zone_engine_past($1, $2, $3) p
