//! The page of a back-test: one file with its charts and tables in it, which asks the network for nothing.

use plotters::style::RGBColor;

use super::plot;
use super::told::{Told, moment, share, span};
use crate::cli::Result;
use crate::cli::output::plain;

const STYLE: &str = "\
:root { color-scheme: light dark; --paper: #fafaf7; --ink: #222831; --faint: #6c757d; --line: #deded8; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 860px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p { color: var(--faint); margin-top: .2rem; }
svg { display: block; width: 100%; height: auto; }
svg rect { shape-rendering: crispEdges; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: .6rem 0 1.4rem; }
th { font-weight: 600; color: var(--faint); }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere; white-space: normal; }
section { break-inside: avoid; }
@media print { :root { --paper: #fff; } body { margin: 0; max-width: none; } }
";

/// Colours of the charts on a dark page, each with the one on a light page.
const DARK: [(RGBColor, &str); 8] = [
    (plot::INK, "#e6e6e1"),
    (plot::FAINT, "#a0a8b0"),
    (plot::GRID, "#3a4149"),
    (plot::ALLOWED, "#3cb89e"),
    (plot::BLOCKED, "#ef7f70"),
    (plot::LINES[1], "#6fb1ee"),
    (plot::LINES[2], "#dba64a"),
    (plot::LINES[3], "#b797e6"),
];

/// A page for what was found in `source`, with the name of what was swept.
pub fn page(source: &str, told: &[Told], swept: Option<&str>) -> Result<String> {
    let title = format!("Back-test of {}", escape(source));
    let facts = told.first().map(|first| span(&first.report)).unwrap_or_default();
    let mut body = format!("<h1>{title}</h1>\n<p>{}</p>\n", escape(&facts));
    if let Some(name) = swept {
        body += &format!("<section>\n<h2>Blocked share by {name}</h2>\n{}</section>\n", plot::sweep(told)?);
    }
    body += &policies(told);
    for one in told.iter().filter(|one| one.value.is_none() && one.report.events > 0) {
        let chart = plot::timeline(&one.report)?;
        body += &format!("<section>\n<h2>{}</h2>\n{chart}{}</section>\n", escape(&one.name), keys(one));
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        dark()
    ))
}

fn policies(told: &[Told]) -> String {
    let rows = told.iter().map(|Told { name, report, .. }| {
        [
            escape(name),
            report.allowed.to_string(),
            report.blocked.to_string(),
            share(report),
            report.keys.to_string(),
            report.blocked_keys.to_string(),
        ]
    });
    table(["policy", "allowed", "blocked", "share", "keys", "blocked keys"], rows)
}

fn keys(told: &Told) -> String {
    let rows =
        told.report.top_blocked.iter().map(|key| {
            [escape(&key.key), key.blocked.to_string(), moment(key.first_at), moment(key.last_at)]
        });
    if rows.len() == 0 {
        String::new()
    } else {
        table(["key", "blocked", "first blocked", "last blocked"], rows)
    }
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let cells = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.map(|row| cells("td", &row)).collect();
    format!("<table>\n{}{rows}</table>\n", cells("th", &header.map(str::to_owned)))
}

/// In the dark, and not on paper. A rule of a style goes before the colours that the charts are drawn with.
fn dark() -> String {
    let rules = DARK.map(|(RGBColor(r, g, b), dark)| {
        let light = format!("#{r:02X}{g:02X}{b:02X}");
        format!(
            "svg [fill=\"{light}\"] {{ fill: {dark}; }}\nsvg [stroke=\"{light}\"] {{ stroke: {dark}; }}\n"
        )
    });
    format!(
        "@media screen and (prefers-color-scheme: dark) {{\n\
         :root {{ --paper: #16191d; --ink: #e6e6e1; --faint: #a0a8b0; --line: #3a4149; }}\n{}}}\n",
        rules.concat()
    )
}

fn escape(text: &str) -> String {
    let escaped = plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;")
}
