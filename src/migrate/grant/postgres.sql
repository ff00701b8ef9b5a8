-- The statements that give a role its rights, with every name as the server writes it.
--
-- $1  the role: app, caller, auditor, operator or owner
-- $2  who is to have it
-- $3  whether the schema is spread over the nodes of Citus, which opens views and fills in defaults at the node that was asked,
--     and reads and writes the tables with the rights of who asks
select format('grant %s on %s %s to %I', r.rights, r.kind, r.object, $2)
    || case when $1 = 'owner' then ' with grant option' else '' end
from (
    select 1, '{app,caller,auditor,operator}'::text[], 'usage', 'schema', quote_ident(current_schema())
    union all
    select 1, '{owner}', 'usage, create', 'schema', quote_ident(current_schema())
    union all
    select 2, g.roles::text[], g.rights, 'function',
        format('%I.%I(%s)', current_schema(), p.proname, pg_get_function_identity_arguments(p.oid))
    from (values
        ('{app,caller,auditor,operator}', 'execute', '{tallygate_schema_version,zone_find}'),
        ('{app,caller}', 'execute', '{check_velocity,rate_limiting_request,zone_check,zone_refund,zone_charges}'),
        ('{app}', 'execute', '{zone_bucket_place,zone_engine_check}'),
        ('{app,operator}', 'execute', '{zone_engine_hold,zone_engine_past,zone_engine_versions,zone_engine_ask}'),
        ('{app}', 'execute', '{zone_engine_append,zone_engine_append_one}'),
        ('{app}', 'execute', '{zone_engine_charges,zone_engine_leases,zone_engine_shapes}'),
        ('{app}', 'execute', '{zone_engine_queue,zone_engine_items,zone_engine_payloads,zone_engine_items_set}'),
        ('{operator}', 'execute', '{zone_operator_append}')
    ) g (roles, rights, names)
    join pg_catalog.pg_proc p
        on p.pronamespace = current_schema()::regnamespace and p.proname = any (g.names::text[])
    union all
    select 3, g.roles::text[], g.rights, 'table', format('%I.%I', current_schema(), f.name)
    from (values
        ('{auditor,operator}', 'select', '{zone_master_view,zone_version_view,zone_calendar_view}'),
        ('{auditor,operator}', 'select', '{zone_override_view,zone_clock_view}'),
        ('{auditor}', 'select', '{zone_bucket_lock_view,zone_bucket_removed_view,zone_upkeep_lock_view}'),
        ('{auditor}', 'select', '{zone_hold_view,zone_txn_view,zone_txn_dropped_view,zone_removal_view}'),
        ('{auditor}', 'select', '{zone_queue_view,zone_item_view,zone_override_by_bucket_view}'),
        ('{operator}', 'select, insert', '{zone_master,zone_calendar}'),
        ('{operator}', 'select', '{zone_version}')
    ) g (roles, rights, names)
    cross join unnest(g.names::text[]) f (name)
    union all
    select 3, '{auditor}', 'select', 'table', format('%I.%I', current_schema(), f.name)
    from unnest('{zone_master,zone_version,zone_calendar,zone_override,zone_bucket_lock,zone_bucket_removed}'::text[]
        || '{zone_upkeep_lock,zone_hold,zone_queue,zone_item,zone_txn,zone_txn_dropped,zone_removal}'::text[]) f (name)
    where $3
    union all
    -- Numbers that a zone has elsewhere are not given again.
    select 3, '{operator}', 'usage', 'sequence', pg_get_serial_sequence(format('%I.%I', current_schema(), 'zone_master'), 'id')
    union all
    -- All of a bucket but its salt, with which an erased key could be found by trying.
    select 4, '{operator}', format('select (%s)', string_agg(quote_ident(a.attname), ', ' order by a.attnum)), 'table',
        format('%I.%I', current_schema(), 'zone_bucket_lock_view')
    from pg_catalog.pg_attribute a
    where a.attrelid = to_regclass(format('%I.%I', current_schema(), 'zone_bucket_lock_view'))
        and a.attnum > 0
        and not a.attisdropped
        and a.attname <> 'salt'
    union all
    -- All of a zone but its number, its name and when it was made.
    select 4, '{operator}', format('update (%s)', string_agg(quote_ident(a.attname), ', ' order by a.attnum)), 'table',
        format('%I.%I', current_schema(), 'zone_master')
    from pg_catalog.pg_attribute a
    where a.attrelid = to_regclass(format('%I.%I', current_schema(), 'zone_master'))
        and a.attnum > 0
        and not a.attisdropped
        and a.attname not in ('id', 'name', 'created_at')
    union all
    -- All of a version but who is logged in: the table writes that down by itself.
    select 5, '{operator}', format('insert (%s)', string_agg(quote_ident(a.attname), ', ' order by a.attnum)), 'table',
        format('%I.%I', current_schema(), 'zone_version')
    from pg_catalog.pg_attribute a
    where a.attrelid = to_regclass(format('%I.%I', current_schema(), 'zone_version'))
        and a.attnum > 0
        and not a.attisdropped
        and (a.attname <> 'login' or $3)
) r (place, roles, rights, kind, object)
where $1 = any (r.roles)
order by r.place, r.object
