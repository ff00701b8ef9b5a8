-- zone_family: which kind of state an algorithm keeps. Not called from outside.
--
-- Arguments  p_algorithm  its name
-- Result     window: nothing but the ledger; level: a level in the bucket's head; held: what is held, each with an
--            end of its own
-- Locks      nothing
create function zone_family(p_algorithm text)
returns text
language sql
immutable
as $$
    select case
        when p_algorithm in ('sliding-log', 'fixed-window', 'sliding-counter') then 'window'
        when p_algorithm in ('distinct', 'concurrency') then 'held'
        else 'level'
    end
$$;
