//! `tallygate serve`.

#[cfg(feature = "otlp")]
mod otlp;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use tallygate_server::{Config, Failure as Refused, Reload, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(feature = "otlp")]
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::exit::Exit;
use super::logs::LogFormat;
use super::terminal::tell;
use super::{Failure, Result, logs, terminal};

const EXAMPLES: &str = "\
Examples:
  tallygate serve                                        on this machine, in sqlite:tallygate.db
  tallygate serve --zones zones.toml --listen unix:/run/tallygate.sock
  tallygate serve --print-config > tallygate.toml        every setting with its default
  tallygate serve --config tallygate.toml --check-config
  tallygate serve --config tallygate.toml --grpc 0.0.0.0:8081 --admin 127.0.0.1:7412
  curl localhost:7411/v1/check --json '{\"zone\":\"login\",\"key\":\"user:42\"}'

SIGHUP reads the tokens, the zones and the certificates again. SIGTERM and Ctrl-C end it: /readyz says no, nothing more is \
accepted, and every accepted request is answered.

RUST_LOG says what is logged to stderr: tallygate_server=info for a line for each request. No key is ever in it. With --log-format json \
everything that is said there is an object.

See docs/server.md for the routes, the tokens and the settings.";

/// Answers checks over HTTP, for programs in any language
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file of settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address to listen on, with a port, or unix:PATH [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address that Envoy asks over gRPC; the file of settings has the mapping [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    grpc: Option<String>,
    /// The address of /metrics and health, which is not that of callers
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The file of tokens; see tallygate token add
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// A file of zones to apply
    #[arg(long, value_name = "FILE")]
    zones: Option<PathBuf>,
    /// Print a file with every setting and its default, and end
    #[arg(long, conflicts_with_all = ["config", "listen", "grpc", "admin", "tokens", "zones", "check_config"])]
    print_config: bool,
    /// Read the settings and the files that they name, say what is wrong with them, and end
    #[arg(long)]
    check_config: bool,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let exit = refused.reason().map_or(Exit::Error, Exit::of);
        Self::new(refused.to_string()).meaning(exit)
    }
}

pub async fn run(url: Option<String>, log_format: LogFormat, args: Args) -> Result {
    if args.print_config {
        stdout().write_all(Config::DEFAULTS.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut config = args.config.as_deref().map(Config::read_file).transpose()?.unwrap_or_default();
    config.database.app = url.unwrap_or(config.database.app);
    config.listen = args.listen.unwrap_or(config.listen);
    config.admin = args.admin.or(config.admin);
    if let Some(address) = args.grpc {
        let envoy = config.envoy.as_mut().ok_or_else(|| {
            Failure::new("--grpc is where Envoy asks, which takes a mapping: set [envoy] mapping in the file of --config")
        })?;
        envoy.listen = address;
    }
    config.tokens = args.tokens.or(config.tokens);
    config.zones = args.zones.or(config.zones);
    if args.check_config {
        config.check()?;
        writeln!(stdout(), "the settings are good")?;
        return Ok(ExitCode::SUCCESS);
    }
    #[cfg(feature = "otlp")]
    let traces = otlp::Traces::begin()?;
    let log = logs::log(log_format)?;
    #[cfg(feature = "otlp")]
    let log = log.with(traces.layer());
    log.init();
    let ended = serve(config, log_format).await;
    #[cfg(feature = "otlp")]
    traces.end().await;
    match ended {
        Err(Failure::Error(message, exit)) if log_format == LogFormat::Json => {
            tracing::error!("{message}");
            Ok(exit.into())
        }
        ended => ended.map(|()| ExitCode::SUCCESS),
    }
}

async fn serve(config: Config, log_format: LogFormat) -> Result<()> {
    // Before anybody is answered: a signal that comes then is not lost.
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hangup = listen(SignalKind::hangup())?;
    let server = tokio::select! {
        server = Server::bind(config) => server?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    if !terminal::is_quiet() {
        welcome(&server, log_format);
    }
    let reload = server.reload();
    let end = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => again(&reload, log_format).await,
            }
        }
        say(log_format, "ending; what was accepted is answered");
    };
    Ok(server.run(end).await?)
}

/// Tells a line of the server's life. A log for programs has nothing in it but objects.
fn say(log_format: LogFormat, line: impl Display) {
    match log_format {
        LogFormat::Text => tell(line),
        LogFormat::Json => tracing::info!("{line}"),
    }
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Failure::new(format!("signals cannot be listened for: {error}")))
}

fn welcome(server: &Server, log_format: LogFormat) {
    let say = |line: &str| say(log_format, line);
    let address = server.address();
    say(&format!("serving {address}"));
    if let Some(address) = server.envoy_address() {
        say(&format!("envoy:   {address}"));
    }
    if let Some(address) = server.doorman_address() {
        say(&format!("doorman: {address}"));
    }
    if let Some(address) = server.admin_address() {
        say(&format!("admin:   {address}"));
    }
    if !server.is_open() || log_format == LogFormat::Json {
        return;
    }
    let curl = match address.strip_prefix("unix:") {
        Some(path) => format!("curl --unix-socket {path} http://localhost/v1/check"),
        None => format!("curl {address}/v1/check"),
    };
    say(&format!("ask it:  {curl} --json '{{\"zone\":\"login\",\"key\":\"user:42\"}}'"));
    say("a zone:  tallygate zone set login --rate 5 --per 60s");
}

/// A fault in a file is told, and the server goes on with what it had.
async fn again(reload: &Reload, log_format: LogFormat) {
    match reload.files().await {
        Ok(()) => say(log_format, "the tokens, the zones and the certificates were read again"),
        Err(refused) if log_format == LogFormat::Json => tracing::error!("{refused}"),
        Err(refused) => Failure::from(refused).tell(),
    }
}
