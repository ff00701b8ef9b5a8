//! The options: what to run.

use std::time::Duration;

use crate::server::Engine;

pub const HELP: &str = "\
cargo bench --bench routine -- [--chain|--local] [--seconds N] [--engine postgres|mysql|mariadb|sqlite]...

  --seconds N        time for each cell of the tables; default 1
  --engine NAME      measure only this engine; may be given more than once; default all four
  --chain            instead of the tables: what the chain of hashes costs, on each engine that has routines
  --local            instead of the tables: one hot key, decided by each process and by the database
  --report-rows N    instead of the tables, on PostgreSQL: how long checks take while a report reads a ledger of
                     so many rows, beside how long they take without it

TALLYGATE_BENCH_POSTGRES_URL, TALLYGATE_BENCH_MYSQL_URL and TALLYGATE_BENCH_MARIADB_URL name servers that
already run; the user must be able to create databases. Without them containers of the images in
TALLYGATE_TEST_POSTGRES_IMAGE, TALLYGATE_TEST_MYSQL_IMAGE and TALLYGATE_TEST_MARIADB_IMAGE are started
(postgres:18, mysql:9.7, mariadb:11.8), with their durability as delivered. The file of SQLite is made in
the current directory: the place for temporary files is often memory.";

pub struct Options {
    pub seconds: Duration,
    pub engines: Vec<Engine>,
    pub report_rows: Option<i64>,
    /// Only what the chain of hashes costs.
    pub chain: bool,
    /// Only what deciding locally gains.
    pub local: bool,
}

impl Options {
    /// None when help is asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            seconds: Duration::from_secs(1),
            engines: Vec::new(),
            report_rows: None,
            chain: false,
            local: false,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo says this to every benchmark.
                "--bench" => {}
                "--chain" => options.chain = true,
                "--local" => options.local = true,
                "--seconds" => {
                    let value = arguments.next().unwrap_or_default();
                    options.seconds = value
                        .parse()
                        .ok()
                        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                        .filter(|time| !time.is_zero())
                        .ok_or(format!("--seconds {value:?} is no time; use a number above 0"))?;
                }
                "--engine" => {
                    let value = arguments.next().unwrap_or_default();
                    let engine = Engine::ALL.into_iter().find(|engine| engine.to_string() == value);
                    options.engines.push(engine.ok_or(format!("engine {value:?} is not known"))?);
                }
                "--report-rows" => {
                    let value = arguments.next().unwrap_or_default();
                    let rows = value.parse().ok().filter(|&rows: &i64| rows > 0);
                    options.report_rows =
                        Some(rows.ok_or(format!("--report-rows {value:?} is no number above 0"))?);
                }
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("{other:?} is not known")),
            }
        }
        if options.engines.is_empty() {
            let all =
                if options.report_rows.is_some() { vec![Engine::Postgres] } else { Engine::ALL.to_vec() };
            options.engines = all;
        }
        if options.report_rows.is_some() && options.engines != [Engine::Postgres] {
            return Err("--report-rows is for --engine postgres".to_owned());
        }
        if options.chain {
            // The embedded engine's hashes are made by the library: cargo bench --bench core.
            options.engines.retain(|engine| *engine != Engine::Sqlite);
        }
        Ok(Some(options))
    }
}
