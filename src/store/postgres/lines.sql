-- A page of a zone's rows after a place, oldest first, by the index zone_txn_zone. The number is written here and not
-- given, so that a server which plans without the arguments knows that the page is short.
select t.id, t.created_at, t.bucket_key, t.kind, t.checks, t.blocked, t.reason, t.cost, t.spent, t.remaining, t.zone_limit,
    t.ends_at, t.note, t.actor, t.login, t.txn_id
from zone_txn_view t
where t.zone_id = $1
    and t.created_at >= $2
    and t.created_at < $3
    and (t.created_at > $2 or t.id > $4)
    and not ($5 and exists (
        select 1
        from zone_bucket_lock_view b
        where b.zone_id = t.zone_id and b.bucket_key = t.bucket_key and b.moved_to is not null
    ))
order by t.created_at, t.id
limit 2000
