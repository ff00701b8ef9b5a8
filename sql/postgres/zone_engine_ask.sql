-- zone_engine_ask: what the rows of buckets say to questions, for a process that decides by itself.
--
-- Arguments  p_zone_ids, p_bucket_keys  the bucket of each question
--            p_questions  total: what was spent in all before a time; reached: when a total was first reached;
--                         strikes: how many strikes there had been before a time; blocked: 1 where, from a time on, a
--                         check was blocked for some time by a version whose blocked rows are coalesced; open: 1 where
--                         a version of the zone was ever open while the database did not answer
--            p_numbers    the total; of times, microseconds since 1970
--            p_after_us, p_until_us  between which times the total was reached; null for other questions
-- Result     the answers in that order, times in microseconds; null where the rows that could say it are not there
-- Locks      nothing
create function zone_engine_ask(
    p_zone_ids    int[],
    p_bucket_keys text[],
    p_questions   text[],
    p_numbers     bigint[],
    p_after_us    bigint[],
    p_until_us    bigint[]
)
returns bigint[]
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    v_answers bigint[] := array_fill(null::bigint, array[cardinality(p_zone_ids)]);
    v_asked   record;
    v_answer  bigint;
begin
    for v_asked in
        select q.zone_id, q.bucket_key, q.question, q.number, q.after_us, q.until_us, q.position
        from unnest(p_zone_ids, p_bucket_keys, p_questions, p_numbers, p_after_us, p_until_us) with ordinality
            as q (zone_id, bucket_key, question, number, after_us, until_us, position)
    loop
        v_answer := null;
        case v_asked.question
            when 'total' then
                select t.spent_total - t.spent
                into v_answer
                from zone_txn t
                where t.zone_id = v_asked.zone_id and t.bucket_key = v_asked.bucket_key
                    and t.created_at >= zone_time(v_asked.number)
                order by t.created_at, t.seq
                limit 1;
                if not found then
                    select d.spent_total
                    into v_answer
                    from zone_txn_dropped d
                    where d.zone_id = v_asked.zone_id and d.bucket_key = v_asked.bucket_key;
                end if;
            when 'reached' then
                v_answer := zone_total_reached(
                    v_asked.zone_id, v_asked.bucket_key, v_asked.number, v_asked.after_us, v_asked.until_us
                );
                -- A ledger that cannot say has lost rows of the window; a whole window from now is certainly enough.
                v_answer := coalesce(v_answer, zone_us(pg_catalog.clock_timestamp()));
            when 'strikes' then
                select t.strikes
                into v_answer
                from zone_txn t
                where t.zone_id = v_asked.zone_id and t.bucket_key = v_asked.bucket_key
                    and t.created_at < zone_time(v_asked.number)
                order by t.created_at desc, t.seq desc
                limit 1;
                if not found then
                    select d.strikes
                    into v_answer
                    from zone_txn_dropped d
                    where d.zone_id = v_asked.zone_id and d.bucket_key = v_asked.bucket_key;
                end if;
                v_answer := coalesce(v_answer, 0);
            when 'blocked' then
                v_answer := exists (
                    select
                    from zone_txn t
                    join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
                    where t.zone_id = v_asked.zone_id and t.bucket_key = v_asked.bucket_key
                        and t.created_at >= zone_time(v_asked.number)
                        and t.kind in ('check', 'reserve') and t.blocked and t.retry_after_us is not null
                        and v.blocked_rows = 'coalesced'
                )::int;
            when 'open' then
                v_answer := exists (
                    select
                    from zone_version v
                    where v.zone_id = v_asked.zone_id and v.on_outage = 'open'
                )::int;
        end case;
        v_answers[v_asked.position] := v_answer;
    end loop;
    return v_answers;
end
$$;
