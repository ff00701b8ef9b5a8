//! A report on a terminal.

use tallygate::audit::report::Report;
use tallygate::page::{Column, count, many, second};

use crate::cli::output::{bold, dim, paragraph, render, table};

pub fn text(report: &Report) -> String {
    let time = format!("{} to {} UTC", second(report.since), second(report.until));
    let mut text =
        paragraph(&format!("{}  {} of the ledger", bold(&time), many(count(report.rows), "row")), 0);
    for figure in report.figures() {
        let before =
            if figure.before.is_empty() { String::new() } else { format!("  {}", dim(&figure.before)) };
        text += &format!("  {} {}{before}\n", figure.number, figure.label);
    }
    for section in report.sections() {
        text += &format!("\n{}", paragraph(&bold(section.heading), 0));
        if section.rows.is_empty() {
            text += &paragraph(section.none, 0);
            continue;
        }
        if !section.about.is_empty() {
            text += &paragraph(&dim(&section.about), 0);
        }
        let names: Vec<&str> = section.columns.iter().map(Column::name).collect();
        let mut table = table(&names);
        let numbers =
            section.columns.iter().enumerate().filter(|(_, kind)| matches!(kind, Column::Number(_)));
        numbers.for_each(|(column, _)| table.align_right(column));
        table.add_rows(section.rows.into_iter().map(|row| row.into_iter().map(|cell| cell.text)));
        text += &render(&table, 0);
    }
    text
}
