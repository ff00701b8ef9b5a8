//! A database of a test's own, and the SQL that tests need beside the library.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row, SqliteConnection};
use tallygate::ledger::History;
use tallygate::schema::{Migrator, Role};
use tallygate::testing::Clock;
use tallygate::{Config, Decision, Isolation, Limiter, Policy};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::citus::{self, Template};
use crate::server::{self, Durability, PATIENCE, Server};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Engine {
    Postgres,
    MySql,
    MariaDb,
    Sqlite,
}

impl Engine {
    /// The isolation levels that make a difference here.
    pub fn isolations(self) -> &'static [Isolation] {
        match self {
            Self::Sqlite => &[Isolation::RowLock],
            _ => &[Isolation::RowLock, Isolation::Serializable],
        }
    }

    pub fn is_mysql(self) -> bool {
        matches!(self, Self::MySql | Self::MariaDb)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::MariaDb => "mariadb",
            Self::Sqlite => "sqlite",
        })
    }
}

/// The routines of PostgreSQL that read its clock, each in one place.
const CLOCK_READERS: [&str; 5] = [
    "zone_decide",
    "zone_operator_append",
    "zone_engine_hold",
    "zone_engine_append",
    "zone_engine_append_one",
];

/// The schema of PostgreSQL's that a test's database has, which is not the one that every database has.
const SCHEMA: &str = "limits";

/// On PostgreSQL a migrated database is copied in a tenth of the time that it takes to make one.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

/// Begins again what a slow machine did not let in, as who runs it would.
macro_rules! let_in {
    ($begin:expr) => {{
        let mut again = 0..60;
        loop {
            match $begin {
                Err(error) if error.is_transient() && again.next().is_some() => {}
                begun => break begun.unwrap(),
            }
        }
    }};
}

/// A fresh database (a file on SQLite), migrated; gone when the test ends well.
pub struct Db {
    pub engine: Engine,
    /// As its owner, who may do everything.
    pub url: String,
    /// Over the nodes of Citus.
    pub is_spread: bool,
    /// Copied from a template, and dropped again.
    is_copy: bool,
    folder: Option<PathBuf>,
    server: Option<Server>,
}

impl Db {
    pub async fn create(engine: Engine, test: &str) -> Self {
        if engine == Engine::Postgres {
            return Self::copy_on_postgres(test).await;
        }
        let db = Self::create_empty(engine, test).await;
        db.migrate().await;
        db
    }

    /// On a server of its own, as delivered: to be killed, or to have something put before it.
    pub async fn create_apart(engine: Engine, _test: &str) -> Self {
        let server = server::start(engine, Durability::Stock).await;
        let (base, _) = server.url.rsplit_once('/').unwrap();
        let url = format!("{base}/apart");
        let mut db = Self::at(engine, server.url.clone());
        db.server = Some(server);
        db.execute("create database apart").await;
        db.url = url;
        db.migrate().await;
        db
    }

    async fn create_empty(engine: Engine, test: &str) -> Self {
        let name = name_for(test);
        if engine == Engine::Sqlite {
            let folder = std::env::temp_dir().join(format!("tallygate-{name}"));
            std::fs::create_dir(&folder).unwrap();
            let url = format!("sqlite:{}", folder.join("test.db").display());
            let mut db = Self::at(engine, url);
            db.folder = Some(folder);
            return db;
        }
        on_server(engine, &format!("create database {name}")).await;
        let (base, _) = server::shared(engine).await.url.rsplit_once('/').unwrap();
        let db = Self::at(engine, format!("{base}/{name}"));
        if engine == Engine::Postgres { db.with_schema(SCHEMA).await } else { db }
    }

    fn at(engine: Engine, url: String) -> Self {
        Self { engine, url, is_spread: false, is_copy: false, folder: None, server: None }
    }

    /// In a new schema of this database of PostgreSQL's.
    async fn with_schema(&self, schema: &str) -> Self {
        self.execute(&format!("create schema {schema}")).await;
        let (database, _) = self.url.split_once('?').unwrap_or((&self.url, ""));
        Self::at(self.engine, format!("{database}?options[search_path]={schema}"))
    }

    async fn copy_on_postgres(test: &str) -> Self {
        let make = async || {
            let template = Self::create_empty(Engine::Postgres, "template").await;
            template.migrate().await;
            template.close().await;
            template.url.clone()
        };
        Self::at(Engine::Postgres, TEMPLATE.get_or_init(make).await.clone()).copy(test).await
    }

    /// Lets nobody in any more, on PostgreSQL: nobody may be in what is copied.
    pub async fn close(&self) {
        let name = self.name();
        for close in [
            format!("alter database {name} allow_connections false"),
            format!("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{name}'"),
        ] {
            on_server(Engine::Postgres, &close).await;
        }
    }

    /// A closed database once more.
    pub async fn copy(&self, test: &str) -> Self {
        let name = name_for(test);
        on_server(self.engine, &format!("create database {name} template {}", self.name())).await;
        let mut db = self.elsewhere(self.url.replace(self.name(), &name));
        db.is_copy = true;
        db
    }

    /// Over the nodes of Citus.
    pub async fn create_spread(test: &str) -> Self {
        Self::create_on_nodes(test, Template::Spread).await
    }

    async fn create_on_nodes(test: &str, template: Template) -> Self {
        let url = citus::create(&name_for(test), template).await;
        let mut db = Self::at(Engine::Postgres, url);
        (db.is_spread, db.is_copy) = (true, true);
        db
    }

    /// An empty one where this one is.
    pub async fn create_empty_beside(&self, test: &str) -> Self {
        match self.engine {
            Engine::Postgres if self.is_spread => Self::create_on_nodes(test, Template::Empty).await,
            Engine::Postgres => self.with_schema(&name_for(test)).await,
            engine => Self::create_empty(engine, test).await,
        }
    }

    /// The database at another URL of the same server, which is there already.
    pub fn elsewhere(&self, url: String) -> Self {
        Self::at(self.engine, url)
    }

    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("a server of its own")
    }

    pub async fn migrate(&self) {
        let migrator = Migrator::new(&self.url).unwrap();
        let_in!(migrator.apply().await);
        if self.engine != Engine::Sqlite {
            for role in [Role::App, Role::Caller, Role::Auditor, Role::Operator] {
                let_in!(migrator.grant(role, &server::user(role)).await);
            }
        }
    }

    /// As the user of a role; on SQLite there are none.
    pub fn url_as(&self, role: Role) -> String {
        if self.engine == Engine::Sqlite { self.url.clone() } else { server::url_as(role, &self.url) }
    }

    /// A limiter as a house has it: it checks as *app*, sets zones and bans as *operator*, and reads the ledger as
    /// *auditor*. No test has more rights than it needs.
    pub async fn limiter(&self) -> Limiter {
        self.limiter_with(self.config()).await
    }

    /// The settings of a limiter that nothing else is asked of: however slow the machine is, its answers come.
    pub fn config(&self) -> Config {
        Config { deadline: PATIENCE, ..Config::default() }
    }

    pub async fn limiter_with(&self, config: Config) -> Limiter {
        let url = self.url_as(Role::App);
        let app = let_in!(Limiter::connect_with(&url, config).await);
        self.with_staff(app).await
    }

    pub async fn with_staff(&self, app: Limiter) -> Limiter {
        if self.engine == Engine::Sqlite {
            return app;
        }
        let connect = async |role| connected(&self.url_as(role)).await;
        app.with_operator(&connect(Role::Operator).await).with_auditor(&connect(Role::Auditor).await)
    }

    /// A URL whose sessions [`kill_a_session`](Self::kill_a_session) knows from all others.
    pub fn url_of_own_sessions(&self, role: Role) -> String {
        let url = if role == Role::Owner { self.url.clone() } else { self.url_as(role) };
        match self.engine {
            Engine::Postgres => {
                let and = if url.contains('?') { '&' } else { '?' };
                format!("{url}{and}application_name={}", self.name())
            }
            _ => url,
        }
    }

    /// Ends one session of this test's own, whichever it is; false when there was none.
    pub async fn kill_a_session(&self, killer: &mut Connected) -> bool {
        self.kill_one(killer, "true", "pg_terminate_backend", "kill").await
    }

    /// Ends a statement of this test's own, whichever it is, and leaves its session; false when none ran.
    pub async fn kill_a_statement(&self, killer: &mut Connected) -> bool {
        let runs = match self.engine {
            Engine::Postgres => "state = 'active'",
            _ => "p.command <> 'Sleep'",
        };
        self.kill_one(killer, runs, "pg_cancel_backend", "kill query").await
    }

    async fn kill_one(&self, killer: &mut Connected, of: &str, postgres: &str, mysql: &str) -> bool {
        let one = match self.engine {
            Engine::Postgres => format!(
                "select pid::bigint from pg_stat_activity where application_name = '{}' and {of}
                order by random() limit 1",
                self.name()
            ),
            _ => format!("select p.id from ({}) p where {of} order by rand() limit 1", self.sessions()),
        };
        let id = killer.number(&format!("select coalesce(({one}), 0)")).await;
        let kill = match self.engine {
            Engine::Postgres => format!("select {postgres}({id})"),
            _ => format!("{mysql} {id}"),
        };
        // It may have gone by itself.
        id > 0 && killer.execute(&kill).await.is_ok()
    }

    /// The number of sessions of this database that wait for a lock.
    pub async fn waiting(&self, observer: &mut Connected) -> i64 {
        let waiting = match self.engine {
            // A number of a session in the whole cluster ends with that of its process.
            Engine::Postgres if self.is_spread => "select count(distinct w.waiting_gpid)
                from citus_lock_waits w
                join pg_stat_activity a on a.pid = w.waiting_gpid % 10000000000
                where a.datname = current_database()"
                .to_owned(),
            Engine::Postgres => "select count(distinct w.pid)
                from pg_locks w
                where not w.granted and exists (
                    select from pg_locks l
                    join pg_class c on c.oid = l.relation
                    where l.pid = w.pid and c.relnamespace = current_schema()::regnamespace
                        and l.database = (select oid from pg_database where datname = current_database())
                )"
            .to_owned(),
            Engine::MySql | Engine::MariaDb => format!(
                "select count(*) from ({}) p
                join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id and t.trx_state = 'LOCK WAIT'",
                self.sessions()
            ),
            Engine::Sqlite => unreachable!("who waits for the file polls"),
        };
        observer.looked(&waiting).await
    }

    /// Ends the one statement of this test's own that waits for a lock, as a DBA would, and leaves its session.
    pub async fn kill_the_waiting_statement(&self, killer: &mut Connected) {
        let id = self.wait_for_a_lock_wait(killer).await;
        killer.execute(&format!("kill query {id}")).await.unwrap();
    }

    /// The session of this test's own that waits for a lock, as soon as one does, on MySQL and MariaDB.
    pub async fn wait_for_a_lock_wait(&self, watcher: &mut Connected) -> i64 {
        let waiting = format!(
            "select coalesce(max(p.id), 0) from ({}) p
            join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id and t.trx_state = 'LOCK WAIT'",
            self.sessions()
        );
        loop {
            match watcher.looked(&waiting).await {
                // InnoDB shows what it showed before until nobody has looked for a tenth of a second.
                0 => tokio::time::sleep(Duration::from_millis(200)).await,
                id => return id,
            }
        }
    }

    /// The sessions of this test's own but the one that asks, on MySQL and MariaDB.
    fn sessions(&self) -> String {
        match self.engine {
            // Its information_schema.processlist fails on statements with binary arguments.
            Engine::MySql => format!(
                "select cast(processlist_id as signed) as id, processlist_command as command
                from performance_schema.threads
                where processlist_db = '{}' and processlist_id <> connection_id()",
                self.name()
            ),
            _ => format!(
                "select cast(id as signed) as id, command from information_schema.processlist
                where db = '{}' and id <> connection_id()",
                self.name()
            ),
        }
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        let (_, place) = self.url.rsplit_once('/').unwrap();
        place.split('?').next().unwrap_or(place)
    }

    /// The name of the schema in it, on PostgreSQL.
    pub fn schema(&self) -> &str {
        self.url.rsplit_once('=').map_or("public", |(_, schema)| schema)
    }

    /// A connection beside the library, as the owner.
    pub async fn connect(&self) -> Connected {
        self.connect_to(&self.url).await
    }

    /// A connection beside the library, as the user of a role.
    pub async fn connect_as(&self, role: Role) -> Connected {
        self.connect_to(&self.url_as(role)).await
    }

    async fn connect_to(&self, url: &str) -> Connected {
        Connected::open(self.engine, url).await.unwrap()
    }

    /// One number from one statement.
    pub async fn number(&self, sql: &str) -> i64 {
        self.connect().await.number(sql).await
    }

    pub async fn execute(&self, sql: &str) {
        self.connect().await.execute(sql).await.unwrap();
    }

    /// A table of the service's own, which its user may write.
    pub async fn create_payment(&self) {
        self.execute("create table payment (id int primary key)").await;
        if self.engine != Engine::Sqlite {
            self.execute(&format!("grant insert on payment to {}", server::user(Role::App))).await;
        }
    }

    /// Puts a test clock in the place of the database's: the routine's own text with its one reading of the
    /// clock replaced. Each session sets its time with [`Connected::set_clock`].
    pub async fn install_test_clock(&self) {
        let read = |path: &str| {
            std::fs::read_to_string(format!("{}/sql/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        let replace = |text: String, clock: &str, by: &str| {
            assert_eq!(text.matches(clock).count(), 1, "the clock is read in one place");
            text.replace(clock, by)
        };
        match self.engine {
            Engine::Postgres => {
                // A session's settings do not reach the node that decides; a file of the container that all nodes are in does.
                let (by, keep) = if self.is_spread {
                    (
                        "(pg_catalog.pg_read_file('/tmp/' || current_database())::timestamptz)",
                        "execute format(
                            'copy (select %L) to program %L', v_now,
                            format('new=`mktemp` && cat > $new && chmod +r $new && mv $new /tmp/%s', current_database())
                        )",
                    )
                } else {
                    (
                        "(current_setting('tallygate_test.clock')::timestamptz)",
                        "perform set_config('tallygate_test.clock', v_now, false)",
                    )
                };
                let mut connection = self.connect().await;
                connection
                    .execute(&format!(
                        "create or replace function test_clock_set(p_us bigint) returns void language plpgsql security definer as $$
                        declare
                            v_now text := timestamp 'epoch' + p_us * interval '1 microsecond' || '+00';
                        begin
                            {keep};
                        end
                        $$"
                    ))
                    .await
                    .unwrap();
                connection
                    .execute("select set_config('search_path', current_schema() || ', pg_temp', false)")
                    .await
                    .unwrap();
                for routine in CLOCK_READERS {
                    let text =
                        replace(read(&format!("postgres/{routine}.sql")), "pg_catalog.clock_timestamp()", by);
                    connection.execute(&self.again(&text)).await.unwrap();
                }
            }
            Engine::MySql | Engine::MariaDb => {
                let text = read("mysql/zone_clock.sql");
                self.execute(&replace(text, "utc_timestamp(6)", "@tallygate_test_clock")).await;
            }
            Engine::Sqlite => unreachable!("the embedded engine takes its test clock from the library"),
        }
    }

    /// A routine's text as a migration makes it again.
    fn again(&self, text: &str) -> String {
        let text = text.replace("create function", "create or replace function");
        if self.is_spread { text.replace("force_generic_plan", "force_custom_plan") } else { text }
    }

    /// Puts the database's clock back in its place.
    pub async fn remove_test_clock(&self) {
        let read = |path: &str| {
            std::fs::read_to_string(format!("{}/sql/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        match self.engine {
            Engine::Postgres => {
                let mut connection = self.connect().await;
                connection
                    .execute("select set_config('search_path', current_schema() || ', pg_temp', false)")
                    .await
                    .unwrap();
                for routine in CLOCK_READERS {
                    let text = read(&format!("postgres/{routine}.sql"));
                    connection.execute(&self.again(&text)).await.unwrap();
                }
            }
            Engine::MySql | Engine::MariaDb => self.execute(&read("mysql/zone_clock.sql")).await,
            Engine::Sqlite => {}
        }
    }

    /// Rows in the ledger.
    pub async fn rows(&self) -> i64 {
        self.number("select count(*) from zone_txn").await
    }

    /// The most that any window of a zone's buckets holds, recomputed from the ledger with nothing but the
    /// time and cost of what was allowed.
    pub async fn fullest_window(&self, zone_id: i32, window_us: i64) -> i64 {
        let inside = match self.engine {
            Engine::Postgres => {
                format!("b.created_at > a.created_at - {window_us} * interval '1 microsecond'")
            }
            Engine::Sqlite => format!("b.created_at > a.created_at - {window_us}"),
            _ => format!("b.created_at > date_sub(a.created_at, interval {window_us} microsecond)"),
        };
        let no = if self.engine == Engine::Postgres { "not " } else { "0 = " };
        let integer = if self.engine.is_mysql() { "signed" } else { "bigint" };
        self.number(&format!(
            "select cast(coalesce(max(s.spent), 0) as {integer}) from (
                select a.id, sum(b.cost) as spent
                from zone_txn a
                join zone_txn b on b.zone_id = a.zone_id and b.bucket_key = a.bucket_key
                    and b.created_at <= a.created_at and {inside}
                where a.zone_id = {zone_id} and {no}a.blocked and {no}b.blocked
                group by a.id
            ) s"
        ))
        .await
    }

    /// Asserts that every answer is a row of the ledger that says the same.
    pub async fn assert_ledger_says(&self, zone: &str, answers: &[Told]) {
        let limiter = self.limiter().await;
        let mut history = History { zone: Some(zone.to_owned()), limit: 10_000, ..History::default() };
        let mut rows = HashMap::new();
        loop {
            let page = limiter.auditor().history(&history).await.unwrap();
            rows.extend(page.rows.into_iter().map(|row| ((row.key.clone(), row.txn_id.to_string()), row)));
            history.before = page.next;
            if history.before.is_none() {
                break;
            }
        }
        for answer in answers {
            let text = |field: &str| answer[field].as_str().unwrap().to_owned();
            let row = rows.get(&(text("key"), text("txn_id")));
            let row = serde_json::to_value(row.unwrap_or_else(|| panic!("lost: {answer}"))).unwrap();
            for field in ["seq", "blocked", "reason", "remaining", "zone_version", "decided_at"] {
                assert_eq!(answer[field], row[field], "{field} of {answer}");
            }
            // Told from now on, where the row counts from the bucket's time, of which the clock may fall short.
            let [told, recorded] = [answer, &row].map(|says| says["retry_after_us"].as_i64());
            let ahead_us = told.zip(recorded).map_or(0, |(told, recorded)| told - recorded);
            assert!(
                told.is_some() == recorded.is_some() && (0..1_000_000).contains(&ahead_us),
                "{answer}: {row}"
            );
        }
    }

    /// That in every bucket the first `limit` checks were allowed and no other, where all cost 1 and none
    /// leaves its window.
    pub async fn assert_first_come(&self, limit: i64) {
        let wrong = format!(
            "select count(*) from zone_txn
            where blocked <> (seq > {limit})
                or remaining <> case when seq < {limit} then {limit} - seq else 0 end"
        );
        assert_eq!(self.number(&wrong).await, 0, "rows on the wrong side of the limit");
    }

    /// That every bucket's seq runs from 1 without a gap, its totals add up, no txn is decided or undone in it twice, and its
    /// head agrees with its last row.
    pub async fn assert_ledger_is_whole(&self) {
        let gaps = "select count(*) from (
                select count(*) as n, max(seq) as last, min(seq) as first,
                    count(distinct case when checks then txn_id end) as decided,
                    count(case when checks then 1 end) as decisions,
                    count(distinct case when undoes then txn_id end) as undone,
                    count(case when undoes then 1 end) as undos,
                    sum(spent) as spent, max(spent_total) as total
                from (
                    select t.zone_id, t.bucket_key, t.seq, t.txn_id, t.spent, t.spent_total,
                        t.kind in ('check', 'reserve', 'coalesced', 'unchecked') as checks,
                        t.kind in ('refund', 'settle', 'cancel', 'release') as undoes
                    from zone_txn t
                ) t
                group by zone_id, bucket_key
            ) b
            where n <> last or first <> 1 or decided <> decisions or undone <> undos or spent <> total";
        assert_eq!(self.number(gaps).await, 0, "buckets with gaps, doubles or wrong totals");
        let heads = "select count(*)
            from zone_bucket_lock b
            left join zone_txn t on t.zone_id = b.zone_id and t.bucket_key = b.bucket_key and t.seq = b.seq
            where b.seq > 0 and (
                t.id is null or t.created_at <> b.last_at or t.spent_total <> b.spent_total
                or coalesce(t.level, -1) <> coalesce(b.level, -1) or t.zone_version <> b.zone_version
                or t.strikes <> b.strikes
            )";
        let headless = "select count(*)
            from (select zone_id, bucket_key, max(seq) as last from zone_txn group by zone_id, bucket_key) t
            left join zone_bucket_lock b on b.zone_id = t.zone_id and b.bucket_key = t.bucket_key
            where coalesce(b.seq, 0) <> t.last";
        assert_eq!(self.number(headless).await, 0, "buckets whose head is missing or behind");
        assert_eq!(self.number(heads).await, 0, "heads that do not agree with their last row");
    }
}

/// Runs SQL as who may make databases.
async fn on_server(engine: Engine, sql: &str) {
    let url = &server::shared(engine).await.url;
    Connected::open(engine, url).await.unwrap().execute(sql).await.unwrap();
}

/// The server may be going already, and it with it.
async fn drop_on_postgres(name: &str) {
    let url = &server::shared(Engine::Postgres).await.url;
    if let Ok(mut admin) = Connected::open(Engine::Postgres, url).await {
        admin.execute(&format!("drop database {name} with (force)")).await.ok();
    }
}

fn name_for(test: &str) -> String {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let short: String = test.rsplit("::").next().unwrap_or(test).chars().take(20).collect();
    format!("t_{short}_{}", &id[id.len() - 12..])
}

/// A call that was answered, as JSON: its decision.
pub type Told = serde_json::Value;

pub fn told(decision: &Decision) -> Told {
    serde_json::to_value(decision).unwrap()
}

impl Drop for Db {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder).ok();
        }
        if self.is_copy {
            let (name, is_spread) = (self.name().to_owned(), self.is_spread);
            tokio::spawn(async move {
                if is_spread { citus::drop(name).await } else { drop_on_postgres(&name).await }
            });
        }
    }
}

pub enum Connected {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Connected {
    pub async fn open(engine: Engine, url: &str) -> Result<Self, sqlx::Error> {
        Ok(match engine {
            Engine::Postgres => Self::Postgres(PgConnection::connect(url).await?),
            Engine::MySql | Engine::MariaDb => Self::MySql(MySqlConnection::connect(url).await?),
            Engine::Sqlite => Self::Sqlite(SqliteConnection::connect(url).await?),
        })
    }

    pub async fn execute(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Postgres(c) => sql.execute(c).await.map(drop),
            Self::MySql(c) => sql.execute(c).await.map(drop),
            Self::Sqlite(c) => sql.execute(c).await.map(drop),
        }
    }

    /// The first column of the last row, as a number.
    pub async fn number(&mut self, sql: &str) -> i64 {
        self.try_number(sql).await.unwrap_or_else(|error| panic!("{error} in: {sql}"))
    }

    /// A number of what goes on in the server; 0 where that cannot be told: MySQL shows no statement whose arguments are no text,
    /// of whichever test, and fails (error 3854).
    async fn looked(&mut self, sql: &str) -> i64 {
        match self.try_number(sql).await {
            Err(error) if error.to_string().contains("3854") => 0,
            number => number.unwrap_or_else(|error| panic!("{error} in: {sql}")),
        }
    }

    pub async fn try_number(&mut self, sql: &str) -> Result<i64, sqlx::Error> {
        macro_rules! last {
            ($connection:expr) => {{
                let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all($connection).await?;
                let row = rows.last().expect("a row");
                row.try_get::<i64, _>(0).or_else(|_| row.try_get::<i32, _>(0).map(i64::from))
            }};
        }
        match self {
            Self::Postgres(c) => last!(c),
            Self::MySql(c) => last!(c),
            Self::Sqlite(c) => last!(c),
        }
    }

    /// The first column of each row.
    pub async fn texts(&mut self, sql: &str) -> Vec<String> {
        macro_rules! all {
            ($connection:expr) => {{
                let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
                let rows = sql.fetch_all($connection).await.unwrap();
                rows.iter().map(|row| row.get_unchecked::<String, _>(0)).collect()
            }};
        }
        match self {
            Self::Postgres(c) => all!(c),
            Self::MySql(c) => all!(c),
            Self::Sqlite(c) => all!(c),
        }
    }

    /// The sum of MySQL's session counters of this name.
    pub async fn status(&mut self, like: &str) -> i64 {
        let Self::MySql(c) = self else { panic!("only MySQL and MariaDB count so") };
        let sql = format!("show session status like '{like}'");
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(c).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>(1).parse::<i64>().unwrap()).sum()
    }

    /// The rows of one call on MySQL or MariaDB.
    pub async fn rows(&mut self, sql: &str) -> Vec<sqlx::mysql::MySqlRow> {
        let Self::MySql(c) = self else { panic!("only MySQL and MariaDB call so") };
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(c).await.unwrap()
    }

    /// The way in which SQLite would carry out a statement.
    pub async fn plan(&mut self, sql: &str) -> String {
        let Self::Sqlite(c) = self else { panic!("only SQLite tells so") };
        let rows =
            sqlx::raw_sql(AssertSqlSafe(format!("explain query plan {sql}"))).fetch_all(c).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>("detail") + " \n").collect()
    }

    pub fn joined(&mut self) -> tallygate::Joined<'_> {
        match self {
            Self::Postgres(c) => c.into(),
            Self::MySql(c) => c.into(),
            Self::Sqlite(c) => c.into(),
        }
    }

    /// Sets the test clock of this session, where [`Db::install_test_clock`] put one.
    pub async fn set_clock(&mut self, us: i64) {
        let sql = match self {
            Self::Postgres(_) => format!("select test_clock_set({us})"),
            _ => format!("set @tallygate_test_clock = date_add('1970-01-01', interval {us} microsecond)"),
        };
        self.execute(&sql).await.unwrap();
    }

    /// A transaction that may write, with the engine's own default isolation.
    pub async fn begin(&mut self) {
        let sql = if matches!(self, Self::Sqlite(_)) { "begin immediate" } else { "start transaction" };
        self.execute(sql).await.unwrap();
    }
}

/// A limiter whose clock a test sets.
pub struct Clocked {
    pub limiter: Limiter,
    session: Session,
    /// The same time, for what the engine remembers.
    assumed: Clock,
}

/// The app's session, and the operator's.
enum Session {
    Postgres([sqlx::PgPool; 2]),
    MySql([sqlx::MySqlPool; 2]),
    Counter(Clock),
}

impl Clocked {
    pub async fn create(db: &Db) -> Self {
        Self::create_with(db, Isolation::RowLock).await
    }

    /// One session of each user, since the clock is the session's.
    pub async fn create_with(db: &Db, isolation: Isolation) -> Self {
        let config = Config { isolation, ..db.config() };
        macro_rules! pooled {
            ($pool:ty, $session:ident) => {{
                db.install_test_clock().await;
                let pool = async |role| {
                    // However long the test lasts: another session would have another clock.
                    let options = sqlx::pool::PoolOptions::new().max_lifetime(None).idle_timeout(None);
                    let options = options.max_connections(1).test_before_acquire(false);
                    options.connect(&db.url_as(role)).await.unwrap()
                };
                let pools: [$pool; 2] = [pool(Role::App).await, pool(Role::Operator).await];
                let [app, operator] = [pools[0].clone(), pools[1].clone()];
                let limiter = db.with_staff(Limiter::with_pool(app, config).await.unwrap()).await;
                let limiter = limiter.with_operator(&Limiter::with_pool(operator, config).await.unwrap());
                let assumed = Clock::at(DateTime::UNIX_EPOCH);
                limiter.assume_clock(&assumed);
                Self { limiter, session: Session::$session(pools), assumed }
            }};
        }
        match db.engine {
            Engine::Postgres => pooled!(sqlx::PgPool, Postgres),
            Engine::MySql | Engine::MariaDb => pooled!(sqlx::MySqlPool, MySql),
            Engine::Sqlite => {
                let counter = Clock::at(DateTime::UNIX_EPOCH);
                let limiter = Limiter::connect_with(&db.url, config).await.unwrap();
                let limiter = limiter.with_clock(&counter).unwrap();
                Self { limiter, session: Session::Counter(counter.clone()), assumed: counter }
            }
        }
    }

    pub async fn set(&self, us: i64) {
        let at = DateTime::<Utc>::from_timestamp_micros(us).unwrap();
        self.assumed.set(at);
        match &self.session {
            Session::Postgres(pools) => {
                for pool in pools {
                    sqlx::query("select test_clock_set($1)").bind(us).execute(pool).await.unwrap();
                }
            }
            Session::MySql(pools) => {
                for pool in pools {
                    sqlx::query("set @tallygate_test_clock = cast(? as datetime(6))")
                        .bind(at.format("%Y-%m-%d %H:%M:%S%.6f").to_string())
                        .execute(pool)
                        .await
                        .unwrap();
                }
            }
            Session::Counter(clock) => clock.set(at),
        }
    }

    /// One row of a routine for SQL callers, asked in the limiter's own session; else the SQLSTATE of its error.
    pub async fn routine(
        &self,
        name: &str,
        zone: &str,
        key: &str,
        txn: Uuid,
        more: &str,
    ) -> Result<ToldInSql, String> {
        // Keys and zones of these tests have no quotes.
        let failed = |error: sqlx::Error| {
            let code = error.as_database_error().and_then(|error| error.code()).map(String::from);
            code.unwrap_or_else(|| panic!("{error}"))
        };
        macro_rules! told {
            ($row:expr) => {{
                let row = $row;
                ToldInSql {
                    blocked: row.try_get("blocked").unwrap_or_default(),
                    reason: row.try_get("reason").unwrap_or_default(),
                    cost: row.try_get("cost").unwrap(),
                    limit: row.try_get("zone_limit").unwrap_or_default(),
                    remaining: row.try_get("remaining").unwrap(),
                    retry_after_us: row.try_get("retry_after_us").unwrap_or_default(),
                    seq: row.try_get("seq").unwrap(),
                    zone_version: row.try_get("zone_version").unwrap(),
                    created_at: row.try_get("created_at").unwrap(),
                    replayed: row.try_get("replayed").unwrap(),
                }
            }};
        }
        match &self.session {
            Session::Postgres([app, _]) => {
                let sql = format!("select * from {name}('{zone}', '{key}', '{txn}'{more})");
                let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(app).await;
                row.map(|row| told!(row)).map_err(failed)
            }
            Session::MySql([app, _]) => {
                let hex = txn.simple();
                let sql = format!("call {name}('{zone}', '{key}', x'{hex}'{more}, false, 60)");
                let sql = if more.is_empty() { sql.replace(", false, 60)", ", 60)") } else { sql };
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(app).await;
                rows.map(|rows| told!(&rows[0])).map_err(failed)
            }
            Session::Counter(_) => unreachable!("no routine is embedded"),
        }
    }

    /// Runs SQL in the limiter's own session.
    pub async fn execute(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match &self.session {
            Session::Postgres([app, _]) => sql.execute(app).await.map(drop).unwrap(),
            Session::MySql([app, _]) => sql.execute(app).await.map(drop).unwrap(),
            Session::Counter(_) => unreachable!("the embedded engine's sessions have no settings"),
        }
    }
}

/// The answer of a routine for SQL callers.
pub struct ToldInSql {
    pub blocked: bool,
    pub reason: String,
    pub cost: i64,
    pub limit: i64,
    pub remaining: i64,
    pub retry_after_us: Option<i64>,
    pub seq: Option<i64>,
    pub zone_version: i32,
    pub created_at: DateTime<Utc>,
    pub replayed: bool,
}

/// A limiter that waits as long as a slow machine takes.
pub async fn connected(url: &str) -> Limiter {
    let config = Config { deadline: PATIENCE, ..Config::default() };
    let_in!(Limiter::connect_with(url, config).await)
}

/// `rate` per `window_s` seconds by sliding log.
pub fn log(rate: i64, window_s: u64) -> Policy {
    Policy::sliding_log(rate, Duration::from_secs(window_s)).unwrap()
}

/// A token bucket.
pub fn bucket(rate: i64, window_s: u64, burst: i64) -> Policy {
    Policy::token_bucket(rate, Duration::from_secs(window_s), Some(burst)).unwrap()
}
