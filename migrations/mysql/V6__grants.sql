-- The users who were given a role, so that each migration can give it again with what is new.

create table if not exists tallygate_grant (
    role       varchar(20)  character set ascii collate ascii_bin not null comment 'app, caller, auditor or operator',
    grantee    varchar(320) character set ascii collate ascii_bin not null comment 'the user or role of the database that has it',
    granted_at datetime(6)  not null comment 'when it was given for the first time, in UTC',
    constraint tallygate_grant_pk primary key (role, grantee),
    constraint tallygate_grant_role_ck check (role in ('app', 'caller', 'auditor', 'operator'))
) comment = 'The users who were given a role by tallygate grant.';
