-- zone_family: which kind of state an algorithm keeps. Not called from outside.
--
-- Arguments  p_algorithm  its name
-- Result     window: nothing but the ledger; level: a level in the bucket's head; held: what is held, each with an
--            end of its own
-- Locks      nothing
-- Errors     TG008 there is no such algorithm
create function zone_family(p_algorithm text)
returns text
language sql
as $$
    select case
        when p_algorithm in ('sliding-log', 'fixed-window', 'sliding-counter') then 'window'
        when p_algorithm in ('distinct', 'concurrency', 'capacity') then 'held'
        when p_algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue') then 'level'
        else zone_error('algorithm', p_algorithm)::text
    end
$$;
