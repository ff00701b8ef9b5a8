-- The users who were given a role, so that each migration can give it again with what is new.

create table tallygate_grant (
    role       text        not null,
    grantee    text        not null,
    granted_at timestamptz not null default clock_timestamp(),
    constraint tallygate_grant_pk primary key (role, grantee),
    constraint tallygate_grant_role_ck check (role in ('app', 'caller', 'auditor', 'operator'))
);
comment on table tallygate_grant is 'The users who were given a role by tallygate grant.';
comment on column tallygate_grant.role is 'app, caller, auditor or operator';
comment on column tallygate_grant.grantee is 'the role of the database that has it';
comment on column tallygate_grant.granted_at is 'when it was given for the first time';
