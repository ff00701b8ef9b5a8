//! The progress of something, for a person who looks.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use super::terminal;

/// The time between two moves while nothing is heard.
const TICK: Duration = Duration::from_millis(100);

/// Draws a template of indicatif on stderr, where somebody looks at it, and takes it away at the end. Without a length it is
/// not known how much there is.
pub fn progress(length: Option<u64>, template: &str) -> ProgressBar {
    if !terminal::is_watched() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style.progress_chars("━━╌")).with_finish(ProgressFinish::AndClear);
    if length.is_none() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
