//! Pages of HTML that stand alone: one file without a network, light and dark, for the screen and on paper.
//!
//! [`Report::page`](crate::audit::report::Report::page) is one. Whoever makes another draws its charts with `plotters`, in
//! these colours.
//!
//! ```
//! use tallygate::page::{Column, Page};
//! let mut page = Page::new("Cards", "of today");
//! page.table(&[Column::Text("card"), Column::Number("checks")], &[vec!["9f3c".into(), "17".into()]]);
//! assert!(page.finish("from the ledger").starts_with("<!doctype html>"));
//! ```

use chrono::{DateTime, Utc};
use plotters::style::RGBColor;

pub use plotters;

// What charts are drawn with. An SVG holds the colours of the light page; the style sheet gives those of the dark one.
/// Axes and what is said beside a chart.
pub const FAINT: RGBColor = RGBColor(98, 107, 115);
/// Lines behind a chart.
pub const GRID: RGBColor = RGBColor(222, 222, 216);
/// What was allowed.
pub const GREEN: RGBColor = RGBColor(0, 109, 91);
/// What was allowed with a warning.
pub const AMBER: RGBColor = RGBColor(201, 138, 0);
/// What would have been blocked.
pub const VIOLET: RGBColor = RGBColor(122, 95, 168);
/// What was not checked.
pub const BLUE: RGBColor = RGBColor(74, 124, 155);
/// What was blocked.
pub const RED: RGBColor = RGBColor(196, 60, 48);
/// What was blocked from memory.
pub const ROSE: RGBColor = RGBColor(228, 148, 139);

/// The colours of the dark page in place of those.
const DARK: [(RGBColor, &str); 8] = [
    (FAINT, "#a2abb3"),
    (GRID, "#3a4048"),
    (GREEN, "#4db89e"),
    (AMBER, "#e3b04b"),
    (VIOLET, "#b49be0"),
    (BLUE, "#86b3cf"),
    (RED, "#f0786c"),
    (ROSE, "#9c4a43"),
];

const STYLE: &str = include_str!("page.css");

/// A page in the making. Whatever text it is given is shown as that text, and is never markup.
#[derive(Clone, Debug)]
pub struct Page {
    html: String,
}

impl Page {
    /// An empty one.
    pub fn new(title: &str, subtitle: &str) -> Self {
        let dark: String = DARK
            .iter()
            .map(|(color, dark)| {
                let light = hex(*color);
                format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}\n")
            })
            .collect();
        let (title, subtitle) = (escape(title), escape(subtitle));
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
                 <style>\n{STYLE}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n</head>\n\
                 <body>\n<h1>{title}</h1>\n<p class=\"subtitle\">{subtitle}</p>\n"
            ),
        }
    }

    /// What a part of it is about.
    pub fn heading(&mut self, text: &str) {
        self.html += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// Text.
    pub fn paragraph(&mut self, text: &str) {
        self.html += &format!("<p>{}</p>\n", escape(text));
    }

    /// Numbers with what they count.
    pub fn figures(&mut self, figures: &[(String, &str)]) {
        let figure = |(number, label): &(String, &str)| {
            format!("<div><b>{}</b><span>{}</span></div>", escape(number), escape(label))
        };
        let figures: String = figures.iter().map(figure).collect();
        self.html += &format!("<div class=\"figures\">{figures}</div>\n");
    }

    /// A drawing that plotters made, with what it shows in words and what its colours mean.
    pub fn chart(&mut self, title: &str, svg: &str, legend: &[(RGBColor, &str)]) {
        let title = escape(title);
        let entry = |(color, label): &(RGBColor, &str)| {
            let color = hex(*color);
            format!(
                "<span><svg width=\"11\" height=\"11\" aria-hidden=\"true\"><rect width=\"11\" height=\"11\" \
                 fill=\"{color}\"/></svg> {}</span>",
                escape(label)
            )
        };
        let legend: String = legend.iter().map(entry).collect();
        let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
        self.html += &format!("<figure>\n<figcaption>{title}{legend}</figcaption>\n{svg}</figure>\n");
    }

    /// Small charts, as many beside each other as there is room for: of each what [`chart`](Self::chart) takes.
    pub fn charts(&mut self, charts: &[(String, String)], legend: &[(RGBColor, &str)]) {
        self.html += "<div class=\"charts\">\n";
        charts.iter().for_each(|(title, svg)| self.chart(title, svg, legend));
        self.html += "</div>\n";
    }

    /// A table; of each row a text for each column.
    pub fn table(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        let class = |column: &Column| match column {
            Column::Text(_) => "",
            Column::Word(_) => " class=\"w\"",
            Column::Number(_) => " class=\"n\"",
        };
        let cells = |tag: &str, texts: &mut dyn Iterator<Item = &str>| -> String {
            let cell =
                |(column, text): (&Column, &str)| format!("<{tag}{}>{}</{tag}>", class(column), escape(text));
            columns.iter().zip(texts).map(cell).collect()
        };
        let header = cells("th", &mut columns.iter().map(|column| column.name()));
        let rows: String = rows
            .iter()
            .map(|row| format!("<tr>{}</tr>\n", cells("td", &mut row.iter().map(String::as_str))))
            .collect();
        self.html += &format!(
            "<div class=\"wide\"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
        );
    }

    /// The whole page.
    pub fn finish(self, footer: &str) -> String {
        format!("{}<footer>{}</footer>\n</body>\n</html>\n", self.html, escape(footer))
    }
}

/// A column of a table, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Broken where it must be.
    Text(&'static str),
    /// Short, never broken.
    Word(&'static str),
    /// To the right.
    Number(&'static str),
}

impl Column {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(name) | Self::Word(name) | Self::Number(name) => name,
        }
    }
}

/// Text that shows itself in HTML, between tags and in attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

/// As plotters writes a colour.
fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Text from elsewhere, without the control characters that could write over the terminal, and without those that
/// nobody sees, which could make it read otherwise.
pub fn plain(text: &str) -> String {
    let show =
        |c: char| if c.is_control() || is_unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(show).collect()
}

/// Characters that have no width, turn the direction of what follows, tag it, or end a line.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Who did it, as was said, and as whom the session was logged in.
pub fn by(said: &str, login: Option<&str>) -> String {
    let login = login.map(|login| format!(" (login {})", plain(login))).unwrap_or_default();
    format!("{}{login}", plain(said))
}

/// A number by thousands: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A moment, to the second: `2026-03-29 00:59:59`.
pub fn second(moment: DateTime<Utc>) -> String {
    moment.format("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_text_and_never_markup() {
        let hostile = "<script>alert(1)</script>\"'&";
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;";
        let mut page = Page::new(hostile, hostile);
        page.heading(hostile);
        page.paragraph(hostile);
        page.figures(&[(hostile.to_owned(), "rows")]);
        page.chart(hostile, "<svg width=\"1\"></svg>", &[]);
        page.table(&[Column::Text("key")], &[vec![hostile.to_owned()]]);
        let html = page.finish(hostile);
        assert!(!html.contains("<script"), "{html}");
        assert_eq!(html.matches(shown).count(), 10, "{html}");
    }

    #[test]
    fn what_nobody_sees_is_shown_by_its_number() {
        for unseen in
            ['\u{1b}', '\u{85}', '\u{200b}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{feff}', '\u{e0041}']
        {
            assert_eq!(plain(&format!("a{unseen}b")), format!("a\\u{{{:x}}}b", u32::from(unseen)));
        }
        for seen in ["card:9f3c", "Zoë", "日本", "עברית", "👍🏽", "a b"] {
            assert_eq!(plain(seen), seen);
        }
    }

    #[test]
    fn a_number_is_shown_by_thousands() {
        for (number, shown) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(count(number), shown);
        }
    }
}
