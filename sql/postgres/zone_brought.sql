-- zone_brought: a bucket at a time, and what is in force for it then.
create type zone_brought as (
    head       zone_bucket_lock, -- it keeps its last_at; its level is that of the time
    zone       zone_version,     -- the policy, with the limit of an override
    ban_exempt boolean           -- an override says that blocked checks do not lead to a ban
);
