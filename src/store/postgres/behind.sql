-- The age of the last transaction that a standby shows; nothing where it shows all that it is being sent.
select case
    when not pg_is_in_recovery() then null
    when pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn() and exists (select from pg_stat_wal_receiver) then 0
    else (extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()) * 1000000)::bigint
end
