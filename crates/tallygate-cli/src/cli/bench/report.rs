//! The outcome of a run, for people and for programs.

use std::io::{Write, stdout};

use serde::Serialize;

use super::proof::Ledger;
use super::told::Told;
use crate::cli::exit::Exit;
use crate::cli::output::{bold, dim, green, plain, red};
use crate::cli::terminal::tell;
use crate::cli::{Result, duration};

#[derive(Serialize)]
pub struct Report<'a> {
    pub decisions_per_s: u64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub allowed: u64,
    pub blocked: u64,
    /// Attempts after the first, by all calls together.
    pub retries: u64,
    /// Calls that ended without an answer.
    pub errors: u64,
    /// Rows that the answers promise.
    pub rows: u64,
    /// Rows that are there.
    pub ledger: Ledger,
    pub took_us: u64,
    pub settings: Settings<'a>,
    #[serde(skip)]
    last_error: Option<String>,
}

#[derive(Serialize)]
pub struct Settings<'a> {
    pub database: &'a str,
    pub zone: &'a str,
    pub rate: i64,
    pub window_us: i64,
    /// The keys of this run begin with it.
    pub run: &'a str,
    pub seconds: u32,
    pub callers: u32,
    pub connections: u32,
    pub keys: u32,
    pub cost: i64,
    pub batch: bool,
}

impl<'a> Report<'a> {
    pub fn new(told: &Told, retries: u64, ledger: Ledger, settings: Settings<'a>) -> Self {
        let quantile = |part| told.latency_us.value_at_quantile(part);
        Self {
            decisions_per_s: (told.answered() as f64 / told.took.as_secs_f64()).round() as u64,
            p50_us: quantile(0.50),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            allowed: told.allowed,
            blocked: told.blocked,
            retries,
            errors: told.errors,
            rows: told.answered(),
            ledger,
            took_us: told.took.as_micros() as u64,
            settings,
            last_error: told.last_error.as_ref().map(ToString::to_string),
        }
    }

    /// Shows it to people.
    pub fn show(&self) -> Result<()> {
        let mut out = stdout().lock();
        let ms = |us: u64| format!("{:.1}ms", us as f64 / 1_000.0);
        let settings = &self.settings;
        writeln!(
            out,
            "{}  {} in {}: {}, {}",
            bold(&format!("{} decisions a second", self.decisions_per_s)),
            self.rows,
            duration::show_wait(self.took_us as i64),
            green(&format!("{} allowed", self.allowed)),
            red(&format!("{} blocked", self.blocked)),
        )?;
        writeln!(out, "latency  p50 {}  p95 {}  p99 {}", ms(self.p50_us), ms(self.p95_us), ms(self.p99_us))?;
        writeln!(out, "{} retries, {} calls without an answer", self.retries, self.errors)?;
        if let Some(error) = &self.last_error {
            writeln!(out, "  the last: {}", plain(error))?;
        }
        let (rows, window) = (self.ledger.rows, duration::show(settings.window_us));
        if self.ledger.fault.is_none() {
            let most = self.ledger.most_in_any_window;
            writeln!(
                out,
                "{} The ledger agrees: every answer is one of {rows} rows, no bucket has a gap,",
                green("✓")
            )?;
            writeln!(
                out,
                "  and none spent more than {} in any {window} (the most was {most})",
                settings.rate
            )?;
        } else {
            writeln!(out, "{} The ledger has {rows} rows and does not agree", red("✗"))?;
        }
        let batch = if settings.batch { "batched" } else { "one by one" };
        let line = format!(
            "{}, zone {} ({} per {window}), {} callers, {} connections, keys {}, cost {}, {batch}",
            settings.database,
            settings.zone,
            settings.rate,
            settings.callers,
            settings.connections,
            settings.keys,
            settings.cost,
        );
        writeln!(out, "{}", dim(&line))?;
        Ok(())
    }

    /// The verdict. A ledger that does not agree is told on stderr too, whatever the format.
    pub fn verdict(&self) -> Exit {
        match &self.ledger.fault {
            None => Exit::Good,
            Some(fault) => {
                tell(format_args!("the proof failed: {}; please report this", plain(fault)));
                Exit::Disagrees
            }
        }
    }
}
