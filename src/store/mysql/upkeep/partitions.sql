-- The partitions from the oldest on, and when they end: null for the one without an end.
select cast(p.partition_name as char) as name,
    case
        when lower(p.partition_description) = 'maxvalue' then null
        else cast(trim(both '''' from cast(p.partition_description as char)) as datetime(6))
    end as to_at
from information_schema.partitions p
where p.table_schema = database() and p.table_name = 'zone_txn'
order by p.partition_ordinal_position
