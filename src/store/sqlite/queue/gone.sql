-- Forgets items that have gone. ?3 lists the rows of their offers.
delete from zone_item
where zone_id = ?1 and bucket_key = ?2 and seq in (select j.value ->> 0 from jsonb_each(?3) j)
