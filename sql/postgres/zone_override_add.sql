-- zone_override_add: keeps a limit of a single bucket. Not called from outside.
--
-- Arguments  p_override  the limit
-- Locks      the new row
-- Errors     TG003 it cannot be counted
create function zone_override_add(p_override zone_override)
returns void
language plpgsql
as $$
begin
    insert into zone_override (zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at)
    values (
        p_override.zone_id, p_override.bucket_key, p_override.seq, p_override.rate, p_override.window_us,
        p_override.burst, p_override.rate_gcd, p_override.ban_exempt, p_override.ends_at
    );
exception
    when check_violation or division_by_zero or numeric_value_out_of_range then
        perform zone_error(
            'limit', p_override.rate::text, p_override.window_us::text, p_override.burst::text,
            p_override.rate_gcd::text
        );
end
$$;
