-- zone_engine_part: what of a charge ends by itself, as zone_engine_append takes it.
create type zone_engine_part as (
    head       int,         -- the place of its bucket, from 1
    zone_id    int,
    bucket_key text,
    seq        bigint,      -- the row of the charge
    charged_at timestamptz,
    amount     bigint,
    ends_at    timestamptz,
    member     text
);
