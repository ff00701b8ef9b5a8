-- Routines pin the search path they are made under: our schema alone, temporary tables last. One may name another that a later
-- migration installs. Patterns are read as they are written.
select set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true),
    set_config('check_function_bodies', 'off', true),
    set_config('standard_conforming_strings', 'on', true);
