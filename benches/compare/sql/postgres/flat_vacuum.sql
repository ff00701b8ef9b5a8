-- The work of autovacuum on the tables that a decision writes.
select s.relname::text, s.n_live_tup, s.n_dead_tup, s.n_tup_upd, s.n_tup_hot_upd, s.autovacuum_count,
    s.autoanalyze_count, coalesce(extract(epoch from clock_timestamp() - s.last_autovacuum), -1)::float8
from pg_stat_user_tables s
where s.relname in ('zone_txn_first', 'zone_bucket_lock')
order by s.relname desc
