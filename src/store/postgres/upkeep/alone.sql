-- Has upkeep to itself until the transaction ends, however long that idles; 55P03 when somebody else has it.
--
-- A lock of the table, in a mode that only who may write it can ask for. A row's lock would give the transaction a number,
-- and nothing that is removed anywhere could be vacuumed as long as that is open.
begin isolation level read committed;
select set_config(s.name, '0', true)
from pg_catalog.pg_settings s
where s.name in ('idle_in_transaction_session_timeout', 'transaction_timeout');
lock table zone_upkeep_lock in share update exclusive mode nowait;
