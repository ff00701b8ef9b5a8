//! The log of what goes on inside, told on stderr where `RUST_LOG` asks for it. No key is ever in it.

use std::env::var_os;

use clap::ValueEnum;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::{Failure, Result, terminal};

/// The forms of the log.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    // Lines for people.
    Text,
    // An object a line.
    Json,
}

/// The layer that takes the lines, and could take more.
pub type Logged = Layered<Box<dyn Layer<Registry> + Send + Sync>, Registry>;

/// Logs, if it is asked for.
pub fn begin(format: LogFormat) -> Result<()> {
    if var_os(EnvFilter::DEFAULT_ENV).is_some() {
        log(format)?.init();
    }
    Ok(())
}

/// Takes what `RUST_LOG` asks for, or warnings.
pub fn log(format: LogFormat) -> Result<Logged> {
    let asked = var_os(EnvFilter::DEFAULT_ENV);
    let asked = asked.map_or_else(|| "warn".into(), |asked| asked.to_string_lossy().into_owned());
    // With the words of `serve` about its own life, which are told in any case.
    let filter = EnvFilter::try_new(format!("{asked},tallygate::cli::serve=info"))
        .map_err(|error| Failure::new(format!("RUST_LOG cannot be read: {error}")))?;
    // A line that nobody takes is told to nobody: the layer would print that where the line could not go.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines = lines.with_writer(std::io::stderr).with_ansi(terminal::log_has_colours());
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines))
}
