//! The database servers: given by URL, or containers that live as long as this program.

use std::time::Duration;

use sqlx::Connection;
use tallygate::schema::Role;
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use crate::citus;
use crate::db::Engine;

pub const PASSWORD: &str = "tally'gate";

/// For a server that recovers from a kill, and for calls, on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server that answers at `url`, with the rights of its owner.
pub struct Server {
    pub url: String,
    container: Option<ContainerAsync<GenericImage>>,
}

static POSTGRES: OnceCell<Server> = OnceCell::const_new();
static MYSQL: OnceCell<Server> = OnceCell::const_new();
static MARIADB: OnceCell<Server> = OnceCell::const_new();

/// The server that the tests of one database share.
pub async fn shared(engine: Engine) -> &'static Server {
    let (cell, variable) = match engine {
        Engine::Postgres => (&POSTGRES, "TALLYGATE_TEST_POSTGRES_URL"),
        Engine::MySql => (&MYSQL, "TALLYGATE_TEST_MYSQL_URL"),
        Engine::MariaDb => (&MARIADB, "TALLYGATE_TEST_MARIADB_URL"),
        Engine::Sqlite => unreachable!("SQLite needs no server"),
    };
    cell.get_or_init(|| async {
        match std::env::var(variable) {
            Ok(url) => {
                make_users(engine, &url).await;
                Server { url, container: None }
            }
            // No test here ends the server, so it need not wait for the disk.
            Err(_) => start(engine, Durability::Relaxed).await,
        }
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As the server is delivered: a commit waits for the disk.
    Stock,
    Relaxed,
}

/// Starts a server of its own, which is removed when it is dropped. With stock durability its port stays the
/// same over kills and restarts.
pub async fn start(engine: Engine, durability: Durability) -> Server {
    let (variable, default) = match engine {
        Engine::Postgres => ("TALLYGATE_TEST_POSTGRES_IMAGE", "postgres:18"),
        Engine::MySql => ("TALLYGATE_TEST_MYSQL_IMAGE", "mysql:9.7"),
        Engine::MariaDb => ("TALLYGATE_TEST_MARIADB_IMAGE", "mariadb:11.8"),
        Engine::Sqlite => unreachable!("SQLite needs no server"),
    };
    let name = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, "latest"));
    let relaxed = durability == Durability::Relaxed;
    let image = GenericImage::new(repository, tag);
    let request = match engine {
        Engine::Postgres => {
            let mut command = vec!["-c", "max_connections=1000"];
            if relaxed {
                // Nor does a password of the tests need to be hard to guess: each connection would hash it 4,096 times.
                command.extend(["-c", "fsync=off", "-c", "scram_iterations=1"]);
            }
            image
                .with_exposed_port(port(engine).tcp())
                .with_env_var("POSTGRES_PASSWORD", PASSWORD)
                .with_cmd(command)
        }
        Engine::MySql | Engine::MariaDb => {
            let mut command = vec!["--max-connections=1000"];
            if relaxed {
                command.extend(["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]);
                command.extend(["--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"]);
            }
            image
                .with_exposed_port(port(engine).tcp())
                .with_env_var("MYSQL_ROOT_PASSWORD", PASSWORD)
                .with_env_var("MARIADB_ROOT_PASSWORD", PASSWORD)
                .with_cmd(command)
        }
        Engine::Sqlite => unreachable!("SQLite needs no server"),
    };
    // A server that is killed must be found again by those who were connected to it.
    let request = match durability {
        Durability::Stock => request.with_mapped_port(free_port(), port(engine).tcp()),
        Durability::Relaxed => request,
    };
    let container = match labelled(request).start().await {
        Ok(container) => container,
        Err(error) => panic!("no {engine} to test against ({error}); run ./test, which provides it"),
    };
    let mut server = Server { url: String::new(), container: Some(container) };
    server.find(engine, durability).await;
    make_users(engine, &server.url).await;
    if engine == Engine::Postgres && durability == Durability::Relaxed {
        // That of the administrator was hashed before the server had its settings.
        let mut admin = sqlx::PgConnection::connect(&server.url).await.unwrap();
        let again = format!("alter role current_user password '{}'", PASSWORD.replace('\'', "''"));
        sqlx::raw_sql(sqlx::AssertSqlSafe(again)).execute(&mut admin).await.unwrap();
    }
    server
}

/// The user with a role; each test gives it that role in its own database or schema.
pub fn user(role: Role) -> String {
    format!("tallygate_{role}")
}

/// A server's URL for the user of a role.
pub fn url_as(role: Role, url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    format!("{scheme}://{}:{}@{place}", user(role), PASSWORD.replace('\'', "%27"))
}

/// The users, without any right. On a server that is not ours they may be there already.
pub async fn make_users(engine: Engine, url: &str) {
    let password = PASSWORD.replace('\'', "''");
    for role in Role::ALL {
        let user = user(*role);
        if engine == Engine::Postgres {
            let make = format!("create role {user} login password '{password}'");
            let mut admin = sqlx::PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(&mut admin).await.ok();
        } else {
            let make = format!("create user if not exists {user} identified by '{password}'");
            let mut admin = sqlx::MySqlConnection::connect(url).await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
        }
    }
}

impl Server {
    /// Ends the server as a power cut would, in the middle of whatever it does.
    pub async fn kill(&self) {
        docker(&["kill", "--signal", "KILL", self.id()]).await;
        docker(&["wait", self.id()]).await;
    }

    /// Starts it again after it was killed, and waits until it answers.
    pub async fn restart(&mut self, engine: Engine) {
        docker(&["start", self.id()]).await;
        self.find(engine, Durability::Stock).await;
    }

    /// The address where other containers reach it.
    pub async fn address(&self) -> String {
        address(self.id()).await
    }

    pub fn id(&self) -> &str {
        self.container.as_ref().expect("a container of our own").id()
    }

    /// Learns where the container listens and waits until it answers.
    ///
    /// Where the container itself can be reached, nobody stands between: the proxy of a port that Docker publishes takes a
    /// sixth of a core, and time from every round trip. A server that is killed keeps its port, and not always its address.
    async fn find(&mut self, engine: Engine, durability: Durability) {
        let container = self.container.as_ref().expect("a container of our own");
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let mut places = Vec::new();
            if durability == Durability::Relaxed {
                places.push(format!("{}:{}", self.address().await, port(engine)));
            }
            if let Ok(port) = container.get_host_port_ipv4(port(engine)).await {
                places.push(format!("127.0.0.1:{port}"));
            }
            for place in places {
                self.url = url(engine, &place);
                if matches!(timeout(Duration::from_secs(2), answers(engine, &self.url)).await, Ok(true)) {
                    return;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        let logs =
            tokio::process::Command::new("docker").args(["logs", "--tail", "30", self.id()]).output().await;
        panic!("{engine} does not answer within {PATIENCE:?} of its start; its last lines: {logs:#?}");
    }
}

pub fn url(engine: Engine, place: &str) -> String {
    let password = PASSWORD.replace('\'', "%27");
    match engine {
        Engine::Postgres => format!("postgres://postgres:{password}@{place}/postgres"),
        Engine::MySql => format!("mysql://root:{password}@{place}/mysql"),
        _ => format!("mariadb://root:{password}@{place}/mysql"),
    }
}

async fn answers(engine: Engine, url: &str) -> bool {
    match engine {
        Engine::Postgres => sqlx::PgConnection::connect(url).await.is_ok(),
        _ => sqlx::MySqlConnection::connect(url).await.is_ok(),
    }
}

/// Ends the shared containers.
pub async fn stop_all() {
    for cell in [&POSTGRES, &MYSQL, &MARIADB] {
        if let Some(container) = cell.get().and_then(|server| server.container.as_ref()) {
            remove(container).await;
        }
    }
    citus::stop().await;
}

/// A container in a static is never dropped, so it is removed by hand.
pub async fn remove(container: &ContainerAsync<GenericImage>) {
    container.stop_with_timeout(Some(0)).await.ok();
    docker(&["rm", "--force", "--volumes", container.id()]).await;
}

/// The label by which `./test` finds the containers of its run.
pub fn labelled(request: ContainerRequest<GenericImage>) -> ContainerRequest<GenericImage> {
    let run = std::env::var("TALLYGATE_TEST_RUN").unwrap_or_else(|_| "by-hand".to_owned());
    request.with_label("tallygate-test-run", run)
}

fn port(engine: Engine) -> u16 {
    if engine == Engine::Postgres { 5432 } else { 3306 }
}

/// A port that nothing listens on, below those that the system gives to clients: a client that connects again
/// and again to one of these can at last connect to itself.
pub fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(20_000..30_000);
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// The address of a container on the network of the containers.
pub async fn address(container: &str) -> String {
    let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    docker(&["inspect", "--format", format, container]).await.trim().to_owned()
}

async fn docker(arguments: &[&str]) -> String {
    let output = tokio::process::Command::new("docker").args(arguments).output().await.unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
