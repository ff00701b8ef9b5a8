-- zone_engine_row: a row of the ledger as zone_engine_append takes it.
create type zone_engine_row as (
    head           int,         -- the place of its bucket, from 1
    txn_id         uuid,
    named          boolean,     -- it may have been decided in this bucket before
    zone_id        int,
    zone_version   int,
    bucket_key     text,
    seq            bigint,
    kind           text,
    checks         int,
    blocked        boolean,
    reason         text,
    critical       boolean,
    band           smallint,
    cost           bigint,
    spent          bigint,
    spent_total    bigint,
    remaining      bigint,
    zone_limit     bigint,
    retry_after_us bigint,
    delay_us       bigint,
    level          bigint,
    strikes        bigint,
    target_at      timestamptz,
    created_at     timestamptz,
    prev_at        timestamptz,
    ends_at        timestamptz,
    member         text,
    salt           bytea,       -- of the bucket, in its first row
    row_hash       bytea
);
