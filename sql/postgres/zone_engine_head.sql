-- zone_engine_head: a bucket as zone_engine_append moves it: where it was, and where it comes to.
create type zone_engine_head as (
    zone_id       int,
    bucket_key    text,
    is_new        boolean,     -- it had no row
    was_seq       bigint,      -- where it was when the rows were derived: seq, row_hash, last_at and spent_total
    was_hash      bytea,
    was_at        timestamptz,
    was_total     bigint,
    seq           bigint,
    last_at       timestamptz,
    spent_total   bigint,
    level         bigint,
    strikes       bigint,
    banned_until  timestamptz,
    ban_strikes   bigint,
    carried       bigint,
    carried_at    timestamptz,
    carried_total bigint,
    carried_seq   bigint,
    override_seq  bigint,
    zone_version  int,         -- the version of the zone that decided
    bans          int,
    holding       boolean,
    ended         boolean,     -- what has ended by last_at is of no more use to it
    shapes        text,        -- what a settlement taught of them all; null where none did
    salt          bytea,
    row_hash      bytea
);
