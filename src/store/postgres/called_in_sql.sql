-- Was a bucket of a zone decided in for a caller in SQL within so many microseconds?
select exists (
    select 1 -- of nothing Citus makes a record without columns
    from zone_bucket_lock_view b
    where b.zone_id = $1 and b.sql_at > (select c.now_at from zone_clock_view c) - $2 * interval '1 microsecond'
)
