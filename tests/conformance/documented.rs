//! `docs/sql.md` does what it shows: its examples are run in their order, and what they print is compared.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::str::FromStr;

use chrono::{NaiveDate, NaiveTime};
use tallygate::schema::Role;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::db::{Db, Engine};
use crate::{program, server};

/// A fenced block of the page, and the text that follows it at once.
struct Example {
    language: &'static str,
    /// The words of the tool that it is written for, and as whom it is run.
    words: Vec<&'static str>,
    code: &'static str,
    shows: &'static str,
}

fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut rest = include_str!("../../docs/sql.md");
    while let Some((before, fenced)) = rest.split_once("```") {
        let (block, after) = fenced.split_once("\n```\n").expect("an end of each block");
        let (language, code) = block.split_once('\n').unwrap();
        match (language, examples.last_mut()) {
            ("text", Some(example)) if before.trim().is_empty() => example.shows = code,
            _ => {
                let mut words = language.split(' ');
                let language = words.next().unwrap();
                examples.push(Example { language, words: words.collect(), code, shows: "" });
            }
        }
        rest = after;
    }
    examples
}

impl Example {
    fn role(&self) -> Role {
        self.words.get(1).map_or(Role::Caller, |role| role.parse().unwrap())
    }
}

/// Word by word, but for what is another each time: the hour, the ids that the database made, and waits.
fn lasting(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let is_id = word.starts_with("0x") && word.len() == 34;
        let is_time = NaiveDate::from_str(word).is_ok() || NaiveTime::from_str(word).is_ok();
        let is_wait = words.last() == Some(&"retry_after_us:") && word != "NULL";
        words.push(if is_id || is_time || is_wait { "…" } else { word });
    }
    words
}

pub async fn output(command: &mut Command, input: &str) -> String {
    let command =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{input}\n{out}{err}");
    out
}

/// Makes the zones of the page as it says.
async fn make_zones(db: &Db) {
    let shell = examples().into_iter().find(|example| example.language == "sh").unwrap();
    for line in shell.code.lines() {
        let mut command = program::tallygate(&db.url_as(Role::Operator));
        output(command.args(line.strip_prefix("tallygate ").unwrap().split(' ')), "").await;
    }
}

/// A program in the server's container, which knows the password.
pub async fn in_container(db: &Db) -> Command {
    let server = server::shared(db.engine).await.id().to_owned();
    let password = server::PASSWORD;
    let mut command = Command::new("docker");
    command.args(["exec", "--interactive"]);
    command.args([
        "--env",
        &format!("PGPASSWORD={password}"),
        "--env",
        &format!("MYSQL_PWD={password}"),
        &server,
    ]);
    command
}

/// The server's own shell, in its container.
async fn shell(db: &Db, role: Role) -> Command {
    let [user, name] = [server::user(role), db.name().to_owned()];
    let mut command = in_container(db).await;
    match db.engine {
        Engine::Postgres => {
            let place =
                format!("host=127.0.0.1 dbname={name} user={user} options=-csearch_path={}", db.schema());
            command.args(["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", &place])
        }
        engine => {
            let tool: &[&str] = if engine == Engine::MySql { &["mysql", "--commands"] } else { &["mariadb"] };
            command.args(tool).args(["--table", "--binary-as-hex", "--host=127.0.0.1"]);
            command.args([&format!("--user={user}"), &name])
        }
    };
    command
}

/// Python with its drivers, in a container beside the server's.
async fn python(db: &Db) -> Command {
    let [user, name, server] =
        [server::user(Role::Caller), db.name().to_owned(), server::shared(db.engine).await.id().to_owned()];
    let image =
        std::env::var("TALLYGATE_TEST_PYTHON_IMAGE").unwrap_or_else(|_| "tallygate-test/python:1".to_owned());
    let run = std::env::var("TALLYGATE_TEST_RUN").unwrap_or_else(|_| "by-hand".to_owned());
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--interactive", "--network", &format!("container:{server}")]);
    command.args(["--label", &format!("tallygate-test-run={run}")]);
    for (variable, value) in [
        ("PGHOST", "127.0.0.1"),
        ("PGUSER", &*user),
        ("PGPASSWORD", server::PASSWORD),
        ("PGDATABASE", &*name),
        ("PGOPTIONS", &*format!("-csearch_path={}", db.schema())),
        ("DB_USER", &*user),
        ("DB_PASSWORD", server::PASSWORD),
        ("DB", &*name),
    ] {
        command.args(["--env", &format!("{variable}={value}")]);
    }
    command.arg(image);
    command
}

pub async fn the_examples_show_what_they_print(db: Db) {
    make_zones(&db).await;
    let mut run = 0;
    let tool = if db.engine == Engine::Postgres { "psql" } else { "mysql" };
    for example in examples().iter().filter(|example| example.language == "sql" && example.words[0] == tool) {
        let mut command = shell(&db, example.role()).await;
        let shows = output(&mut command, example.code).await;
        assert_eq!(lasting(&shows), lasting(example.shows), "{}", example.code);
        run += 1;
    }
    assert_eq!(run, 9, "one for each routine, the plain zones, and a report");
    db.assert_ledger_is_whole().await;
}

pub async fn the_examples_in_python_show_what_they_print(db: Db) {
    make_zones(&db).await;
    let driver = if db.engine == Engine::Postgres { "psycopg" } else { "pymysql" };
    let example = examples().into_iter().find(|example| example.words == [driver]).unwrap();
    let mut command = python(&db).await;
    output(command.args(["-m", "doctest", "/dev/stdin"]), example.code).await;
    assert_eq!(db.rows().await, 8);
}

/// The page has every routine that a caller in SQL may execute, with its arguments and, on PostgreSQL, their types and defaults.
pub async fn every_public_routine_has_its_signature(db: Db) {
    let (tool, sql) = match db.engine {
        // Those that take a zone by its name have the same arguments otherwise.
        Engine::Postgres => (
            "postgres: ",
            "select format(
                '%s(%s) returns %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
            )
            from pg_proc p
            where p.pronamespace = current_schema()::regnamespace
                and p.proargnames[1] is distinct from 'p_zone'
                and p.prokind = 'f'
                and has_function_privilege('tallygate_caller', p.oid, 'execute')",
        ),
        _ => (
            "mysql: ",
            "select concat(r.routine_name, '(', coalesce((
                select group_concat(p.parameter_name order by p.ordinal_position separator ', ')
                from information_schema.parameters p
                where p.specific_schema = r.routine_schema and p.specific_name = r.routine_name
            ), ''), ')')
            from information_schema.routines r
            where r.routine_schema = database() and exists (
                select 1 from mysql.procs_priv p
                where p.db = r.routine_schema and p.routine_name = r.routine_name
                    and p.user = 'tallygate_caller'
            )",
        ),
    };
    if db.engine.is_mysql() {
        // As any other, an argument is cut in a session without strict mode before the routine can look at it.
        let cut = "select concat(p.specific_name, '.', p.parameter_name)
            from information_schema.parameters p
            join mysql.procs_priv v on v.db = p.specific_schema and v.routine_name = p.specific_name
            where p.specific_schema = database() and p.data_type <> 'varbinary'
                and v.user = 'tallygate_caller'";
        assert_eq!(db.connect().await.texts(cut).await, [""; 0], "arguments that are not declared as bytes");
    }
    let there = db.connect().await.texts(sql).await;
    let there: BTreeSet<String> = there.iter().map(|signature| plain(signature)).collect();
    let mut shown = BTreeSet::new();
    for example in examples().iter().filter(|example| example.words == ["signature"]) {
        let line = example.code.split("\n\n").find_map(|line| line.strip_prefix(tool)).unwrap();
        let (names, rest) = line.split_once('(').unwrap();
        shown.extend(names.split(", ").map(|name| plain(&format!("{name}({rest}"))));
    }
    assert_eq!(shown, there);
}

/// As people write it: in one line, with types by their short names, and of a default only the value.
fn plain(signature: &str) -> String {
    let line = signature.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let line = line.replace("( ", "(").replace(" )", ")");
    let mut parts = line.split("::");
    let first = parts.next().unwrap_or_default().to_owned();
    let line = parts.fold(first, |line, part| {
        line + part.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_[]".contains(c))
    });
    line.replace("integer", "int")
}
