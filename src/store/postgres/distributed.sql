select exists (
    select
    from pg_catalog.pg_dist_partition p
    where p.logicalrelid = to_regclass('zone_bucket_lock')
)
