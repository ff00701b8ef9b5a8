-- Each zone as it stood at a time.
select z.id, z.name, v.version, v.row_hash
from zone_master_view z
join zone_version_view v on v.zone_id = z.id
where v.version = (select max(m.version) from zone_version_view m where m.zone_id = z.id and m.changed_at <= ?)
order by z.id
