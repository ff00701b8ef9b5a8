//! A report on a terminal.

use tallygate::audit::report::Report;
use tallygate::page::{Column, count, second};

use crate::cli::output::{bold, dim, render, table};

pub fn text(report: &Report) -> String {
    let time = format!("{} to {} UTC", second(report.since), second(report.until));
    let mut text = format!("{}  {} rows of the ledger\n", bold(&time), count(report.rows));
    for section in report.sections() {
        text += &format!("\n{}\n", bold(section.heading));
        if section.rows.is_empty() {
            text += &format!("{}\n", section.none);
            continue;
        }
        if !section.about.is_empty() {
            text += &format!("{}\n", dim(&section.about));
        }
        let names: Vec<&str> = section.columns.iter().map(Column::name).collect();
        let mut table = table(&names);
        let numbers =
            section.columns.iter().enumerate().filter(|(_, kind)| matches!(kind, Column::Number(_)));
        numbers.for_each(|(column, _)| table.align_right(column));
        table.add_rows(section.rows);
        text += &render(&table, 0);
    }
    text
}
