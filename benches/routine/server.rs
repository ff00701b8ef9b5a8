//! The database servers: given by URL, or a container that lives as long as its measurements.

use std::fmt;
use std::time::Duration;

use sqlx::Connection;
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

const PASSWORD: &str = "tallygate";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    MySql,
    MariaDb,
    Sqlite,
}

impl Engine {
    pub const ALL: [Self; 4] = [Self::Postgres, Self::MySql, Self::MariaDb, Self::Sqlite];
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

/// A server that answers at `url`, with the rights of its owner.
pub struct Server {
    pub url: String,
    container: Option<ContainerAsync<GenericImage>>,
}

impl Server {
    pub async fn start(engine: Engine) -> Self {
        let (name, image) = match engine {
            Engine::Postgres => ("POSTGRES", "postgres:18"),
            Engine::MySql => ("MYSQL", "mysql:9.7"),
            Engine::MariaDb => ("MARIADB", "mariadb:11.8"),
            Engine::Sqlite => unreachable!("SQLite needs no server"),
        };
        if let Ok(url) = std::env::var(format!("TALLYGATE_BENCH_{name}_URL")) {
            return Self { url, container: None };
        }
        let image =
            std::env::var(format!("TALLYGATE_TEST_{name}_IMAGE")).unwrap_or_else(|_| image.to_owned());
        let (repository, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
        let image = GenericImage::new(repository, tag);
        let request = match engine {
            Engine::Postgres => image
                .with_exposed_port(5432.tcp())
                .with_env_var("POSTGRES_PASSWORD", PASSWORD)
                // 64 clients beside the limiter's 64 connections.
                .with_cmd(["-c", "max_connections=200"]),
            _ => image
                .with_exposed_port(3306.tcp())
                .with_env_var("MYSQL_ROOT_PASSWORD", PASSWORD)
                .with_env_var("MARIADB_ROOT_PASSWORD", PASSWORD),
        };
        let container = match request.start().await {
            Ok(container) => container,
            Err(error) => {
                panic!("no {engine} to measure ({error}); ./test provides it, or give a URL: --help")
            }
        };
        let url = answering_url(engine, &container).await;
        Self { url, container: Some(container) }
    }

    pub async fn stop(self) {
        if let Some(container) = self.container {
            container.stop_with_timeout(Some(0)).await.ok();
            container.rm().await.ok();
        }
    }
}

/// Where a container listens, once it does.
async fn answering_url(engine: Engine, container: &ContainerAsync<GenericImage>) -> String {
    for _ in 0..600 {
        let (port, scheme, user) = match engine {
            Engine::Postgres => (5432, "postgres", "postgres"),
            Engine::MySql => (3306, "mysql", "root"),
            _ => (3306, "mariadb", "root"),
        };
        if let Ok(port) = container.get_host_port_ipv4(port).await {
            let url = format!("{scheme}://{user}:{PASSWORD}@127.0.0.1:{port}");
            let answers = match engine {
                Engine::Postgres => sqlx::PgConnection::connect(&url).await.is_ok(),
                _ => sqlx::MySqlConnection::connect(&url).await.is_ok(),
            };
            if answers {
                return url;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{engine} does not answer within 60 s of its start");
}

/// The machine, in a line.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, model)| model))
        .unwrap_or("unknown");
    format!("machine: {cores} cores, {model}; client and server share it")
}
