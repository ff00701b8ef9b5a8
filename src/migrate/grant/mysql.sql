-- The statements that give a role its rights, with every name in backticks.
--
-- ?  the role: app, caller, auditor, operator or owner
-- ?  who is to have it, a name
-- ?  the host of it; null for a role, or a user from everywhere
select concat(
    'grant ', r.rights, ' on ', r.kind, '`', d.name, '`.', coalesce(concat('`', r.object, '`'), '*'), ' to `',
    replace(g.name, '`', '``'), '`', coalesce(concat('@`', replace(g.host, '`', '``'), '`'), ''),
    if(g.role = 'owner', ' with grant option', '')
) as statement
from (select ? as role, ? as name, ? as host) g
join (
    select 1 as place, 'app,caller,auditor,operator' as roles, 'execute' as rights, 'procedure ' as kind,
        'tallygate_schema_version' as object
    union all select 2, 'app,caller,auditor,operator', 'execute', 'procedure ', 'zone_find'
    union all select 3, 'app,caller', 'execute', 'procedure ', 'check_velocity'
    union all select 3, 'app,caller', 'execute', 'procedure ', 'check_velocity_in'
    union all select 4, 'app,caller', 'execute', 'procedure ', 'rate_limiting_request'
    union all select 4, 'app,caller', 'execute', 'procedure ', 'rate_limiting_request_in'
    union all select 5, 'app,caller', 'execute', 'procedure ', 'zone_check'
    union all select 6, 'app,caller', 'execute', 'procedure ', 'zone_check_in'
    union all select 7, 'app,caller', 'execute', 'procedure ', 'zone_refund'
    union all select 8, 'app,caller', 'execute', 'procedure ', 'zone_refund_in'
    union all select 13, 'app,caller', 'execute', 'procedure ', 'zone_charges'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_bucket_place'
    union all select 15, 'app,operator', 'execute', 'procedure ', 'zone_engine_hold'
    union all select 15, 'app,operator', 'execute', 'procedure ', 'zone_engine_hold_one'
    union all select 15, 'app,operator', 'execute', 'procedure ', 'zone_engine_versions'
    union all select 15, 'app,operator', 'execute', 'procedure ', 'zone_engine_ask'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_charges'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_leases'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_shapes'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_queue'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_items'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_payloads'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_items_set'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_append'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_check'
    union all select 15, 'app', 'execute', 'procedure ', 'zone_engine_append_one'
    union all select 16, 'operator', 'execute', 'procedure ', 'zone_operator_append'
    union all select 18, 'auditor,operator', 'select', 'table ', 'zone_master_view'
    union all select 19, 'auditor,operator', 'select', 'table ', 'zone_version_view'
    union all select 20, 'auditor,operator', 'select', 'table ', 'zone_calendar_view'
    union all select 20, 'auditor,operator', 'select', 'table ', 'zone_clock_view'
    union all select 21, 'auditor', 'select', 'table ', 'zone_bucket_lock_view'
    union all select 21, 'auditor', 'select', 'table ', 'zone_bucket_removed_view'
    union all select 21, 'auditor', 'select', 'table ', 'zone_upkeep_lock_view'
    union all select 22, 'auditor,operator', 'select', 'table ', 'zone_override_view'
    union all select 22, 'auditor', 'select', 'table ', 'zone_override_by_bucket_view'
    union all select 23, 'auditor', 'select', 'table ', 'zone_hold_view'
    union all select 23, 'auditor', 'select', 'table ', 'zone_queue_view'
    union all select 23, 'auditor', 'select', 'table ', 'zone_item_view'
    union all select 24, 'auditor', 'select', 'table ', 'zone_txn_view'
    union all select 24, 'auditor', 'select', 'table ', 'zone_txn_by_bucket_view'
    union all select 24, 'auditor', 'select', 'table ', 'zone_txn_dropped_view'
    union all select 24, 'auditor', 'select', 'table ', 'zone_removal_view'
    union all select 25, 'operator', 'select, insert', 'table ', 'zone_master'
    union all select 26, 'operator', 'select', 'table ', 'zone_version'
    union all select 27, 'operator', 'select, insert', 'table ', 'zone_calendar'
    union all
    -- All of a bucket but its salt, with which an erased key could be found by trying.
    select 28, 'operator',
        concat('select (', group_concat('`', c.column_name, '`' order by c.ordinal_position separator ', '), ')'),
        'table ', 'zone_bucket_lock_view'
    from information_schema.columns c
    where c.table_schema = database()
        and c.table_name = 'zone_bucket_lock_view'
        and c.column_name <> 'salt'
    union all
    -- All of a zone but its number: MariaDB asks for this right on every column of an upsert.
    select 28, 'operator',
        concat('update (', group_concat('`', c.column_name, '`' order by c.ordinal_position separator ', '), ')'),
        'table ', 'zone_master'
    from information_schema.columns c
    where c.table_schema = database()
        and c.table_name = 'zone_master'
        and c.column_name <> 'id'
    union all
    -- All of a version but who is logged in: the table writes that down by itself.
    select 29, 'operator',
        concat('insert (', group_concat('`', c.column_name, '`' order by c.ordinal_position separator ', '), ')'),
        'table ', 'zone_version'
    from information_schema.columns c
    where c.table_schema = database()
        and c.table_name = 'zone_version'
        and c.column_name <> 'login'
    union all
    select 30, 'owner',
        concat(
            'select, insert, update, delete, create, alter, drop, index, references, create temporary tables, ',
            'execute, create view, show view, create routine, alter routine'
        ),
        '', null
) r
-- In the name of a whole database _ and % stand for others.
join (
    select 0 as pattern, replace(database(), '`', '``') as name
    union all
    select 1, replace(replace(replace(replace(database(), '\\', '\\\\'), '_', '\\_'), '%', '\\%'), '`', '``')
) d on d.pattern = (r.object is null)
where find_in_set(g.role, r.roles) and r.rights is not null
order by r.place
