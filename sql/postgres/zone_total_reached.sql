-- zone_total_reached: when a bucket's total was first at least so much. Not called from outside.
--
-- The total of a row never falls, so the row is searched for between two times: it is often the first; else in turns in the
-- middle and where it lies if as much was spent at any time (interpolation search, with halving as its bound). So the rate
-- does not matter, and there are at most twice as many index probes as the time in microseconds has binary digits.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_total       so much
--            p_after_us    a time by which it was not
--            p_until_us    a time by which it was, or the last row's
-- Result     the time of the row, in microseconds since 1970; null where no row between says it
-- Locks      nothing
create function zone_total_reached(
    p_zone_id int, p_bucket_key text, p_total bigint, p_after_us bigint, p_until_us bigint
)
returns bigint
language plpgsql
stable
as $$
declare
    v_low_us   bigint := greatest(p_after_us, 0);  -- the row is not before this time
    v_low      bigint := p_total - 1;              -- what had been spent by then; the most where that is not known
    v_high_us  bigint := p_until_us + 1;           -- and the row is before this time
    v_high     bigint;                             -- what had been spent by then; null where that is not known
    v_share    float8 := 0;                        -- where between them is looked: first at the first row
    v_halve    boolean := false;
    v_probe_us bigint;
    v_row_us   bigint;
    v_spent    bigint;
    v_total    bigint;
begin
    while v_high_us - v_low_us > 1 loop
        v_probe_us := least(v_low_us + 1 + floor((v_high_us - v_low_us - 1) * v_share)::bigint, v_high_us - 1);
        select zone_us(t.created_at), t.spent, t.spent_total
        into v_row_us, v_spent, v_total
        from zone_txn t
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= zone_time(v_probe_us)
        order by t.created_at, t.seq
        limit 1;
        if not found or v_total - v_spent >= p_total then
            v_high_us := v_probe_us;
            v_high := v_total - v_spent;
        elsif v_total >= p_total then
            return v_row_us;
        else
            v_low_us := v_row_us;
            v_low := v_total;
        end if;
        v_halve := not v_halve;
        v_share := case when v_halve or v_high is null then 0.5 else (p_total - v_low)::float8 / (v_high - v_low) end;
    end loop;
    -- The row is none, or another of the same time.
    return (
        select zone_us(t.created_at)
        from zone_txn t
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at = zone_time(v_low_us)
            and t.spent_total >= p_total
        order by t.seq
        limit 1
    );
end
$$;
