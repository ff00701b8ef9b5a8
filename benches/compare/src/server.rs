//! Servers: databases in containers, Redis as a process. The caller of this program (the script `run`) removes the
//! containers and the directory when it ends, however it ends.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sqlx::{Connection, MySqlConnection, PgConnection};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::database::Engine;

const PASSWORD: &str = "tallygate";

/// The longest that a server may take until it answers.
const START: Duration = Duration::from_secs(90);

/// The folder where servers run and write.
pub struct Place {
    run: String,
    pub scratch: PathBuf,
    pub cores: Option<String>,
}

impl Place {
    /// As the script says.
    pub fn given(cores: Option<String>) -> Result<Self> {
        let variable =
            |name| std::env::var(name).with_context(|| format!("{name} is not set: use the script `run`"));
        Ok(Self {
            run: variable("TALLYGATE_COMPARE_RUN")?,
            scratch: variable("TALLYGATE_COMPARE_SCRATCH")?.into(),
            cores,
        })
    }

    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.join(name);
        std::fs::create_dir(&path)?;
        // The server in the container has a user of its own.
        std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        std::fs::set_permissions(&self.scratch, Permissions::from_mode(0o711))?;
        Ok(path)
    }
}

/// A database server that answers.
pub struct Server {
    /// The first process of its container.
    pub process: u32,
    /// Its URL on the loopback interface, without a database.
    pub url: String,
    /// The same at its own address, on the bridge of the containers.
    pub own_url: String,
}

impl Server {
    /// The largest size of packets to its own address.
    pub fn mtu(&self) -> Result<u32> {
        let path = "/sys/class/net/docker0/mtu";
        Ok(std::fs::read_to_string(path).context(path)?.trim().parse()?)
    }
}

/// Starts a database server with the settings that it is delivered with.
pub async fn start(engine: Engine, place: &Place) -> Result<Server> {
    let (name, variable, inner_port, data) = match engine {
        Engine::Postgres => ("postgres", "POSTGRES", 5432, "/var/lib/postgresql"),
        Engine::MySql => ("mysql", "MYSQL", 3306, "/var/lib/mysql"),
        Engine::MariaDb => ("mariadb", "MARIADB", 3306, "/var/lib/mysql"),
        Engine::Sqlite => bail!("SQLite needs no server"),
    };
    let variable = format!("TALLYGATE_TEST_{variable}_IMAGE");
    let image =
        std::env::var(&variable).with_context(|| format!("{variable} is not set: use the script `run`"))?;
    let source = place.directory(name)?;
    let mut docker = Command::new("docker");
    docker
        .args(["run", "--detach", "--label", &format!("tallygate-compare-run={}", place.run)])
        .args(["--publish", &format!("127.0.0.1::{inner_port}")])
        .args(["--mount", &format!("type=bind,src={},dst={data}", source.display())])
        .args(["--env", &format!("POSTGRES_PASSWORD={PASSWORD}")])
        .args(["--env", &format!("MYSQL_ROOT_PASSWORD={PASSWORD}")])
        .args(["--env", &format!("MARIADB_ROOT_PASSWORD={PASSWORD}")]);
    if let Some(cores) = &place.cores {
        docker.args(["--cpuset-cpus", cores]);
    }
    docker.arg(image);
    if engine == Engine::Postgres {
        docker.args(["-c", "max_connections=200"]);
    }
    let id = output(&mut docker).await?;
    let process =
        output(Command::new("docker").args(["inspect", "--format", "{{.State.Pid}}", &id])).await?.parse()?;
    let ports = output(Command::new("docker").args(["port", &id, &format!("{inner_port}/tcp")])).await?;
    let port = ports.lines().next().and_then(|line| line.rsplit(':').next()).context("no port")?;
    let user = if engine == Engine::Postgres { "postgres" } else { "root" };
    let address = "{{.NetworkSettings.Networks.bridge.IPAddress}}";
    let address = output(Command::new("docker").args(["inspect", "--format", address, &id])).await?;
    let [url, own_url] = [format!("127.0.0.1:{port}"), format!("{address}:{inner_port}")]
        .map(|at| format!("{name}://{user}:{PASSWORD}@{at}"));
    let begin = Instant::now();
    loop {
        let connected = match engine {
            Engine::Postgres => PgConnection::connect(&url).await.map(drop),
            _ => MySqlConnection::connect(&url).await.map(drop),
        };
        match connected {
            Ok(()) => return Ok(Server { process, url, own_url }),
            Err(error) if begin.elapsed() > START => {
                return Err(error)
                    .with_context(|| format!("{name} does not answer within {START:?} of its start"));
            }
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn output(command: &mut Command) -> Result<String> {
    let output = timeout(START, command.stdin(Stdio::null()).kill_on_drop(true).output())
        .await
        .context("docker")??;
    if !output.status.success() {
        bail!("docker: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A Redis of its own; ends when dropped.
pub struct Redis {
    pub client: redis::Client,
    pub port: u16,
    process: Child,
}

impl Redis {
    pub async fn start(appendfsync: &str, place: &Place) -> Result<Self> {
        let directory = place.directory(&format!("redis-{appendfsync}"))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", appendfsync, "--dir"])
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(log(&directory)?)
            .kill_on_drop(true)
            .spawn()
            .context("redis-server")?;
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
        let begin = Instant::now();
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(_) => return Ok(Self { client, port, process }),
                Err(error) if begin.elapsed() > START => return Err(error).context("redis does not answer"),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Redis {
    pub async fn stop(mut self) {
        self.process.kill().await.ok();
    }

    pub async fn version(&self) -> Result<String> {
        let mut connection = self.client.get_multiplexed_async_connection().await?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let version =
            info.lines().find_map(|line| line.strip_prefix("redis_version:")).context("no version")?;
        Ok(version.to_owned())
    }
}

fn log(directory: &Path) -> Result<std::fs::File> {
    Ok(std::fs::File::create(directory.join("log"))?)
}
