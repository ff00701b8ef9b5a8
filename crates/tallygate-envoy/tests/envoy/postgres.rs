//! A PostgreSQL of a test's own, to be killed.

use std::net::TcpListener;
use std::process::Command;

use tallygate::schema::Migrator;
use tallygate::sqlx::{Connection, PgConnection};
use tallygate::uuid::Uuid;

use crate::envoy::soon;

/// A server with durability as delivered, in a container that goes away with it.
pub struct Postgres {
    pub url: String,
    container: String,
}

impl Postgres {
    /// With the tables of tallygate.
    pub async fn begin() -> Self {
        let image =
            std::env::var("TALLYGATE_TEST_POSTGRES_IMAGE").unwrap_or_else(|_| "postgres:18".to_owned());
        let run = std::env::var("TALLYGATE_TEST_RUN").unwrap_or_else(|_| "by-hand".to_owned());
        let (label, port) = (format!("tallygate-test-run={run}"), free_port());
        let publish = format!("127.0.0.1:{port}:5432");
        let container = docker(&[
            "run",
            "--detach",
            "--label",
            &label,
            "--publish",
            &publish,
            "--env",
            "POSTGRES_PASSWORD=tests",
            &image,
        ]);
        let postgres =
            Self { url: format!("postgres://postgres:tests@127.0.0.1:{port}/postgres"), container };
        postgres.answers().await;
        Migrator::new(&postgres.url).unwrap().apply().await.unwrap();
        postgres
    }

    /// Ends it as a power cut would, in the middle of whatever it does.
    pub fn kill(&self) {
        docker(&["kill", "--signal", "KILL", &self.container]);
    }

    /// Begins it again, where it was.
    pub async fn restart(&self) {
        docker(&["start", &self.container]);
        self.answers().await;
    }

    async fn answers(&self) {
        soon("PostgreSQL answers", async || PgConnection::connect(&self.url).await.ok()).await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        docker(&["rm", "--force", "--volumes", &self.container]);
    }
}

/// A port that nothing listens on, below those that the system gives to clients: whoever connects to one of these again and
/// again, while nothing listens there, can at last connect to itself.
fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| 20_000 + (Uuid::new_v4().as_u128() % 10_000) as u16);
    ports.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("docker, which ./test provides");
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
