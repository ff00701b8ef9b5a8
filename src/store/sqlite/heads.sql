-- The heads of those buckets that have one, as one text: a row for each comes dear. The last number but one is 1 where
-- a head says more than most do; behind the semicolon stands the end of its chain. And whether a bucket without one may
-- be in the ledger all the same; and the name of this database among several, and those of all. ?1 lists [zone_id, bucket_key].
select group_concat(
        concat_ws(
            ' ',
            j.key,
            b.seq,
            coalesce(b.last_at, 0),
            b.spent_total,
            coalesce(b.zone_version, 0),
            b.strikes,
            coalesce(b.banned_until, b.carried_at, b.override_seq, b.moved_to) is not null
                or b.bans + b.ban_strikes + b.holding > 0,
            b.level
        ) || ';' || hex(b.row_hash) || hex(b.salt)
    ) as numbers,
    exists (
        select 1
        from jsonb_each(?1) j
        cross join zone_bucket_removed r
        where r.zone_id = j.value ->> 0
    ) as removed,
    (select s.name from tallygate_shard s) as shard, (select s.among from tallygate_shard s) as among
from jsonb_each(?1) j
cross join zone_bucket_lock b
where b.zone_id = j.value ->> 0 and b.bucket_key = j.value ->> 1
