-- zone_window: what the sums of a bucket over times are made of. Times are microseconds since 1970.
create type zone_window as (
    zone_id       int,
    bucket_key    text,
    version       int,     -- the policy: whose calendar it is
    algorithm     text,
    window_us     bigint,
    slots         bigint,
    calendar      text,
    seq           bigint,  -- the bucket's head
    last_us       bigint,
    spent_total   bigint,
    carried       bigint,
    carried_us    bigint,
    carried_total bigint,
    carried_seq   bigint,
    holding       boolean,
    now_us        bigint,  -- the time
    own           bigint,  -- what the check in question spends now
    floor_us      bigint   -- what ended of charges before it concerns no sum
);
