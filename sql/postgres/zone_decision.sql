-- zone_decision: what zone_check returns.
create type zone_decision as (
    id             bigint,      -- number of the ledger row; null for a peek
    txn_id         uuid,        -- the transaction that was decided
    zone_id        int,
    zone_version   int,         -- the version of the zone that decided
    bucket_key     text,
    seq            bigint,      -- position in the bucket's ledger; null for a peek
    blocked        boolean,
    reason         text,        -- within_limit, off; over_limit, exceeds_limit, banned; what the library recorded before
    cost           bigint,
    zone_limit     bigint,      -- the most that a check like it can spend
    remaining      bigint,      -- what can still be spent after the decision
    retry_after_us bigint,      -- the least wait in microseconds; null when allowed or never
    created_at     timestamptz, -- when it was decided
    replayed       boolean      -- decided before; nothing was spent now
);
