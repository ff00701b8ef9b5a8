-- zone_recorded: what zone_undo returns.
create type zone_recorded as (
    id           bigint,      -- number of the ledger row
    txn_id       uuid,        -- the transaction; of a charge that ended, the one that made it
    zone_id      int,
    zone_version int,         -- the version of the zone in force
    bucket_key   text,
    seq          bigint,      -- position in the bucket's ledger
    kind         text,        -- refund, settle, cancel, release
    cost         bigint,      -- given back; what a settlement came to
    spent        bigint,      -- what a settlement charged beyond its reservation; else 0
    remaining    bigint,      -- what can be spent now
    created_at   timestamptz, -- when it was recorded
    replayed     boolean      -- recorded before; nothing happened now
);
