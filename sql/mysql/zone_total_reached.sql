-- zone_total_reached: when a bucket's total was first at least so much; not called from outside.
--
-- The total of a row never falls, so the row is searched for between two times: it is often the first; else in turns in the
-- middle and where it lies if as much was spent at any time (interpolation search, with halving as its bound). So the rate
-- does not matter, and there are at most twice as many index probes as the time in microseconds has binary digits.
--
-- The read stands in a derived table for the reason that zone_engine_ask tells.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_total       so much
--            p_after_us    a time by which it was not
--            p_until_us    a time by which it was, or the last row's
--            o_reached_us  the time of the row, in microseconds since 1970; null where no row between says it
-- Locks      nothing
drop procedure if exists zone_total_reached;
create procedure zone_total_reached(
    in  p_zone_id    int,
    in  p_bucket_key varbinary(255),
    in  p_total      bigint,
    in  p_after_us   bigint,
    in  p_until_us   bigint,
    out o_reached_us bigint
)
sql security definer
begin
    declare v_epoch    datetime default timestamp'1970-01-01 00:00:00';
    declare v_low_us   bigint default greatest(p_after_us, 0);  -- the row is not before this time
    declare v_low      bigint default p_total - 1;              -- what had been spent by then; the most where that is not known
    declare v_high_us  bigint default p_until_us + 1;           -- and the row is before this time
    declare v_high     bigint;                                  -- what had been spent by then; null where that is not known
    declare v_share    double default 0;                        -- where between them is looked: first at the first row
    declare v_halve    boolean default false;
    declare v_probe_us bigint;
    declare v_probe    datetime(6);
    declare v_row_us   bigint;
    declare v_before   bigint;
    declare v_total    bigint;
    declare continue handler for not found begin end;
    while v_high_us - v_low_us > 1 and o_reached_us is null do
        set v_probe_us = least(v_low_us + 1 + floor((v_high_us - v_low_us - 1) * v_share), v_high_us - 1);
        set v_probe = date_add(v_epoch, interval v_probe_us microsecond);
        set v_before = null;
        select timestampdiff(microsecond, v_epoch, r.created_at), r.spent_total - r.spent, r.spent_total
        into v_row_us, v_before, v_total
        from (
            select t.created_at, t.spent_total, t.spent
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= v_probe and t.sealed
            order by t.created_at, t.seq
            limit 1
        ) r;
        if v_before is null or v_before >= p_total then
            set v_high_us = v_probe_us;
            set v_high = v_before;
        elseif v_total >= p_total then
            set o_reached_us = v_row_us;
        else
            set v_low_us = v_row_us;
            set v_low = v_total;
        end if;
        set v_halve = not v_halve;
        set v_share = if(v_halve or v_high is null, 0.5, (p_total - v_low + 0e0) / (v_high - v_low));
    end while;
    if o_reached_us is null then
        -- The row is none, or another of the same time.
        set v_probe = date_add(v_epoch, interval v_low_us microsecond);
        select max(v_low_us)
        into o_reached_us
        from zone_txn t force index (zone_txn_bucket_uq)
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = v_probe
            and t.spent_total >= p_total and t.sealed;
    end if;
end;
