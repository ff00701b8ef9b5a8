-- A routine runs in the modes of SQL that it was made in. The other settings are those that change what a statement makes or shows.
set session
    sql_mode = concat(
        'STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'
        -- Without this mode a grant would make the user, without a password. MySQL never does.
        /*M! , ',NO_AUTO_CREATE_USER' */
    ),
    /*M! sql_if_exists = 0, */
    default_storage_engine = InnoDB,
    autocommit = 1,
    completion_type = 0,
    group_concat_max_len = 1048576,
    sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615;
