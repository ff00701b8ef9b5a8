-- zone_verdict: what zone_decide says of a check.
create type zone_verdict as (
    head           zone_bucket_lock, -- the bucket's next head, a ban's row included
    blocked        boolean,
    reason         text,
    spent          bigint,
    zone_limit     bigint,
    remaining      bigint,
    retry_after_us bigint,
    delay_us       bigint,
    ends_at        timestamptz,      -- what it took ends by itself then
    decided_at     timestamptz,
    banned_until   timestamptz       -- when the ban ends that it brings about; null without one
);
