//! Attempts from a CSV file, played at their own times.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use tallygate::Policy;

use super::{Args, KEYS_SHOWN, show};
use crate::cli::Result;
use crate::cli::backtest::candidates::Candidate;
use crate::cli::backtest::events::{self, Columns};
use crate::cli::backtest::told;
use crate::cli::backtest::trials::Trials;
use crate::cli::output::{Answer, bold, paragraph, plain};
use crate::cli::terminal::quoted;

/// A clock can be waited for, but not turned back: the times of a file are those of a back-test, without a ledger.
pub fn play(file: &Path, args: &Args, policy: Policy) -> Result {
    let columns = Columns::named(&args.at_column, &args.key_column);
    let mut trials = Trials::new(None, vec![Candidate::of(policy)], None, false, None)?;
    let skipped = events::read(file, &columns, |event| trials.play(event))?;
    let (told, most) = trials.told(KEYS_SHOWN, &skipped);
    let mut out = stdout().lock();
    if args.format == Answer::Json {
        writeln!(out, "{}", serde_json::to_string(&told)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = file.display().to_string();
    let story = format!(
        "{policy} for each {}, at the times that the file names. It is played in memory, and nothing is written.",
        plain(&args.key_column)
    );
    write!(out, "{}\n{}\n", bold(&format!("A back-test of {}", plain(&name))), paragraph(&story, 2))?;
    out.write_all(told::text(&told, &most).as_bytes())?;
    let mut flags = format!("{} --key-column {}", quoted(&name), quoted(&args.key_column));
    if args.at_column != "at" {
        flags += &format!(" --at-column {}", quoted(&args.at_column));
    }
    show::next(
        &mut out,
        None,
        &[
            format!("backtest {flags} --rate 5 --per 10m"),
            format!("backtest {flags} --per 10m --sweep rate=3..20"),
            format!("backtest {flags} --rate 5 --per 60s --html backtest.html"),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}
