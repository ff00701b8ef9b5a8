//! Tables and sentences that fit a terminal. They are broken at words only, so that an id or a key stays in one piece and
//! can be selected by a double click.
//!
//! A table that fits is printed as it is. One that is too wide has its cells broken at words. Where the longest words do
//! not fit beside each other, or rows would become tall, each row is a paragraph that names the columns.

use textwrap::core::display_width;
use textwrap::{Options, WordSplitter};

use super::output::{bold, dim};
use super::terminal;

/// The spaces between two columns.
const GAP: usize = 2;

/// Rows of more lines than this are harder to read than paragraphs.
const ROW_LINES_MAX: usize = 3;

/// Cells in columns, without lines between them.
pub struct Table {
    names: Vec<String>,
    /// Columns of numbers.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

/// A table without rows.
pub fn table(names: &[&str]) -> Table {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    Table { right: vec![false; names.len()], names, rows: Vec::new() }
}

/// The table, `indent` spaces from the edge of the terminal that it is made to fit.
pub fn render(table: &Table, indent: usize) -> String {
    table.fit(indent, terminal::width())
}

/// The rows of a table that goes on from one whose header was shown.
pub fn render_more(table: &Table, indent: usize) -> String {
    let [_, rows] = table.fit_parts(indent, terminal::width());
    rows
}

/// Sentences, each line `indent` spaces from the edge of the terminal.
pub fn paragraph(text: &str, indent: usize) -> String {
    fill(text, indent, indent, terminal::width())
}

impl Table {
    /// Adds a row: a text for each column.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds rows.
    pub fn add_rows(&mut self, rows: impl IntoIterator<Item = impl IntoIterator<Item = impl Into<String>>>) {
        rows.into_iter().for_each(|row| self.add_row(row));
    }

    /// The texts of this column end below each other, as numbers do.
    pub fn align_right(&mut self, column: usize) {
        self.right.iter_mut().skip(column).take(1).for_each(|right| *right = true);
    }

    fn fit(&self, indent: usize, width: Option<usize>) -> String {
        self.fit_parts(indent, width).concat()
    }

    /// The header, which is empty where each row names the columns, and the rows.
    fn fit_parts(&self, indent: usize, width: Option<usize>) -> [String; 2] {
        let widest = self.widths(display_width);
        let Some(room) = width.map(|width| width.saturating_sub(indent)) else {
            return self.columns(&widest, indent);
        };
        let shared = share(room, &self.widths(longest_word), &widest);
        let wrapped =
            shared.filter(|widths| self.rows.iter().all(|row| height(row, widths) <= ROW_LINES_MAX));
        match wrapped {
            Some(widths) => self.columns(&widths, indent),
            None => {
                [String::new(), self.rows.iter().map(|row| self.record(row, indent, indent + room)).collect()]
            }
        }
    }

    /// The greatest measure of the texts of each column.
    fn widths(&self, measure: impl Fn(&str) -> usize) -> Vec<usize> {
        let texts = |column: usize| {
            [&self.names].into_iter().chain(&self.rows).filter_map(move |row| row.get(column))
        };
        (0..self.names.len())
            .map(|column| texts(column).map(|text| measure(text)).max().unwrap_or_default())
            .collect()
    }

    fn columns(&self, widths: &[usize], indent: usize) -> [String; 2] {
        let header: String =
            self.lines(&self.names, widths, indent).iter().map(|line| bold(line) + "\n").collect();
        let rows = self.rows.iter().flat_map(|row| self.lines(row, widths, indent));
        [header, rows.map(|line| line + "\n").collect()]
    }

    fn lines(&self, row: &[String], widths: &[usize], indent: usize) -> Vec<String> {
        let cells: Vec<Vec<_>> = row.iter().zip(widths).map(|(cell, &width)| wrap(cell, width)).collect();
        let line = |number: usize| {
            let mut line = " ".repeat(indent);
            for ((cell, &width), &right) in cells.iter().zip(widths).zip(&self.right) {
                let text = cell.get(number).map_or("", |text| text);
                let rest = " ".repeat(width.saturating_sub(display_width(text)));
                line += &if right { rest + text } else { text.to_owned() + &rest };
                line += &" ".repeat(GAP);
            }
            line.trim_end().to_owned()
        };
        (0..height(row, widths)).map(line).collect()
    }

    /// A row as a paragraph: each text behind the name of its column.
    fn record(&self, row: &[String], indent: usize, width: usize) -> String {
        let mut lines: Vec<String> = Vec::new();
        // Nothing follows on the last line of a long text.
        let mut broken = false;
        for (name, cell) in self.names.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
            let pair = format!("{} {cell}", dim(name));
            match lines.last_mut() {
                Some(line) if !broken && display_width(line) + GAP + display_width(&pair) <= width => {
                    *line += &format!("{:GAP$}{pair}", "");
                }
                before => {
                    let first = if before.is_none() { indent } else { indent + GAP };
                    let text = fill(&pair, first, indent + GAP, Some(width));
                    broken = text.lines().count() > 1;
                    lines.extend(text.lines().map(str::to_owned));
                }
            }
        }
        lines.join("\n") + "\n"
    }
}

/// The widths of columns between their least and their best that fit into this room; None where not even the least do. The room
/// that is left over is shared fairly: a column that lacks less than an equal part gets all that it lacks, and leaves the rest to
/// the others.
fn share(room: usize, least: &[usize], best: &[usize]) -> Option<Vec<usize>> {
    let gaps = GAP * best.len().saturating_sub(1);
    let mut left = room.checked_sub(gaps + least.iter().sum::<usize>())?;
    let mut widths = least.to_vec();
    let mut lacking: Vec<_> = widths.iter_mut().zip(best).collect();
    lacking.sort_by_key(|(width, best)| best.saturating_sub(**width));
    let mut sharers = lacking.len();
    for (width, best) in lacking {
        let part = best.saturating_sub(*width).min(left / sharers);
        *width += part;
        left -= part;
        sharers -= 1;
    }
    Some(widths)
}

/// The number of lines that a row takes.
fn height(row: &[String], widths: &[usize]) -> usize {
    row.iter().zip(widths).map(|(cell, &width)| wrap(cell, width).len()).max().unwrap_or_default()
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(display_width).max().unwrap_or_default()
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    textwrap::wrap(text, at_words(width)).into_iter().map(String::from).collect()
}

fn fill(text: &str, first: usize, others: usize, width: Option<usize>) -> String {
    let [first, others] = [first, others].map(|indent| " ".repeat(indent));
    let options = at_words(width.unwrap_or(usize::MAX));
    textwrap::fill(text, options.initial_indent(&first).subsequent_indent(&others)) + "\n"
}

fn at_words<'o>(width: usize) -> Options<'o> {
    Options::new(width).break_words(false).word_splitter(WordSplitter::NoHyphenation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TXN: &str = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11";

    fn history() -> Table {
        let mut table =
            table(&["decided at", "zone", "key", "decision", "left", "try again in", "transaction"]);
        table.add_row(["2026-11-22 03:00:23.932", "payments", "card:9f3c", "over_limit", "0", "41.2s", TXN]);
        table.add_row(["2026-11-22 03:00:24.017", "payments", "card:0061", "within_limit", "17", "", TXN]);
        table.align_right(4);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(display_width).max().unwrap_or_default()
    }

    #[test]
    fn a_table_that_fits_or_that_nobody_looks_at_is_a_line_for_each_row() {
        for width in [None, Some(200), Some(116)] {
            let text = history().fit(0, width);
            assert_eq!((text.lines().count(), widest(&text)), (3, 116), "{width:?}\n{text}");
            assert!(text.contains("over_limit       0  41.2s"), "{text}");
        }
    }

    #[test]
    fn one_that_is_too_wide_is_broken_at_words_and_lacks_none() {
        for width in 40..116 {
            let text = history().fit(2, Some(width));
            assert!(widest(&text) <= width, "{width}\n{text}");
            let shown: Vec<&str> = text.split_whitespace().collect();
            for word in history().rows.iter().flatten().flat_map(|cell| cell.split(' ')) {
                assert!(
                    word.is_empty() || shown.contains(&word),
                    "{word:?} is in pieces at {width}:\n{text}"
                );
            }
        }
    }

    #[test]
    fn columns_stay_while_their_words_fit_beside_each_other() {
        let mut zones = table(&["name", "description"]);
        zones.add_row(["payments", "cents per card and day, as the contract says"]);
        assert_eq!(
            zones.fit(0, Some(34)),
            "name      description\npayments  cents per card and day,\n          as the contract says\n"
        );
    }

    #[test]
    fn rows_become_paragraphs_where_they_do_not() {
        let row = history().fit(0, Some(60));
        assert_eq!(
            row.lines().take(4).collect::<Vec<_>>(),
            [
                "decided at 2026-11-22 03:00:23.932  zone payments",
                "  key card:9f3c  decision over_limit  left 0",
                "  try again in 41.2s",
                "  transaction 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11",
            ]
        );
    }

    #[test]
    fn sentences_are_broken_at_words_too() {
        assert_eq!(fill("one two-three four", 2, 2, Some(11)), "  one\n  two-three\n  four\n");
        assert_eq!(fill("one two", 0, 0, None), "one two\n");
    }
}
