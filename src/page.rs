//! Pages of HTML that stand alone: one file without a network, light and dark, for the screen and on paper.
//!
//! [`Report::page`](crate::audit::report::Report::page) is one. Another is made of the same parts: headings, from which the table of
//! contents is made, figures, tables whose cells lead to each other, and charts ([`Plot`]). No word that fits in a line is
//! broken, however narrow the page is.
//!
//! ```
//! use tallygate::page::{Column, Page};
//! let mut page = Page::new("Cards", "of today");
//! page.table(&[Column::Text("card"), Column::Number("checks")], &[vec!["9f3c", "17"]]);
//! assert!(page.finish("from the ledger").starts_with("<!doctype html>"));
//! ```

mod plot;
mod text;

use plotters::style::RGBColor;

pub use plot::{Bar, Mark, Pattern, Plot};
pub use plotters;
pub use text::{by, count, many, plain, second, short};
use text::{escape, words};

// The colours of charts. An SVG holds the colours of the light page; the style sheet gives those of the dark one.
/// Axes and what is said beside a chart.
pub const FAINT: RGBColor = RGBColor(98, 107, 115);
/// Lines behind a chart.
pub const GRID: RGBColor = RGBColor(222, 222, 216);
/// The colour of checks that were allowed.
pub const GREEN: RGBColor = RGBColor(0, 109, 91);
/// The colour of checks that were allowed with a warning.
pub const AMBER: RGBColor = RGBColor(201, 138, 0);
/// The colour of checks that would have been blocked.
pub const VIOLET: RGBColor = RGBColor(122, 95, 168);
/// The colour of calls that were not checked.
pub const BLUE: RGBColor = RGBColor(74, 124, 155);
/// The colour of checks that were blocked.
pub const RED: RGBColor = RGBColor(196, 60, 48);
/// The colour of checks that were blocked from memory.
pub const ROSE: RGBColor = RGBColor(228, 148, 139);

/// Checks that were allowed.
pub const ALLOWED: Mark = Mark { color: GREEN, pattern: Pattern::Solid };
/// Checks that were allowed with a warning.
pub const SOFT: Mark = Mark { color: AMBER, pattern: Pattern::Lying };
/// Checks that would have been blocked.
pub const SHADOWED: Mark = Mark { color: VIOLET, pattern: Pattern::Dotted };
/// Calls that were not checked.
pub const UNCHECKED: Mark = Mark { color: BLUE, pattern: Pattern::Standing };
/// Checks that were blocked.
pub const BLOCKED: Mark = Mark { color: RED, pattern: Pattern::Slanted };
/// Checks that were blocked from memory.
pub const COALESCED: Mark = Mark { color: ROSE, pattern: Pattern::Tinted };

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

/// A page in the making. Any text that it is given is shown as that text, and is never markup.
///
/// The facts that a reader needs first stand above: the title, what it is about, who made it of what, and from three headings on
/// a table of contents.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    subtitle: String,
    imprint: String,
    /// Of each heading its id and its words.
    headings: Vec<(String, String)>,
    html: String,
}

impl Page {
    /// An empty one.
    pub fn new(title: &str, subtitle: &str) -> Self {
        Self {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            imprint: String::new(),
            headings: Vec::new(),
            html: String::new(),
        }
    }

    /// A line below the title: the maker, the time and the source.
    pub fn imprint(&mut self, text: &str) {
        self.imprint = format!("<p class=\"imprint\">{}</p>\n", words(text));
    }

    /// The heading of a part, which the table of contents has too.
    pub fn heading(&mut self, text: &str) {
        let id = format!("part-{}", self.headings.len() + 1);
        self.html += &format!("<h2 id=\"{id}\">{}</h2>\n", words(text));
        self.headings.push((id, text.to_owned()));
    }

    /// The heading of a piece of a part, with an id that cells and bars lead to; empty for none.
    pub fn subheading(&mut self, id: &str, text: &str) {
        self.html += &format!("<h3{}>{}</h3>\n", attribute("id", id), words(text));
    }

    /// Text.
    pub fn paragraph(&mut self, text: &str) {
        self.html += &format!("<p>{}</p>\n", words(text));
    }

    /// Sentences that stand below each other.
    pub fn list(&mut self, sentences: &[String]) {
        let items: String = sentences.iter().map(|text| format!("<li>{}</li>\n", words(text))).collect();
        self.html += &format!("<ul>\n{items}</ul>\n");
    }

    /// Numbers with what they count.
    pub fn figures(&mut self, figures: &[(String, &str)]) {
        let figures: Vec<_> = figures
            .iter()
            .map(|(number, label)| Figure { number: number.clone(), label, before: String::new() })
            .collect();
        self.compared(&figures);
    }

    /// Numbers with what they count and how they were before.
    pub fn compared(&mut self, figures: &[Figure<'_>]) {
        let figure = |Figure { number, label, before }: &Figure<'_>| {
            let before =
                if before.is_empty() { String::new() } else { format!("<small>{}</small>", words(before)) };
            format!("<div><b>{}</b><span>{}</span>{before}</div>", escape(number), words(label))
        };
        let figures: String = figures.iter().map(figure).collect();
        self.html += &format!("<div class=\"figures\">{figures}</div>\n");
    }

    /// A chart.
    pub fn plot(&mut self, plot: &Plot) {
        self.html += &plot.html();
    }

    /// Charts beside each other, as many as there is room for.
    pub fn plots(&mut self, plots: &[Plot]) {
        let plots: String = plots.iter().map(Plot::html).collect();
        self.html += &format!("<div class=\"charts\">\n{plots}</div>\n");
    }

    /// A drawing that plotters made, with what it shows in words and what its colours mean. Its words shrink with it, so on
    /// a narrow page it is moved sideways; a [`Plot`] is not.
    pub fn chart(&mut self, title: &str, svg: &str, legend: &[(RGBColor, &str)]) {
        let title = escape(title);
        let entry = |(color, label): &(RGBColor, &str)| {
            plot::swatch(label, Mark { color: *color, pattern: Pattern::Solid })
        };
        let legend: String = legend.iter().map(entry).collect();
        let width = svg.split_once("width=\"").and_then(|(_, rest)| rest.split_once('"'));
        let width: u32 = width.and_then(|(width, _)| width.parse().ok()).unwrap_or_default();
        // Words that plotters is told to make 13 pixels high are a little more than 9 then.
        let least = width * 9 / 10;
        let svg = svg.replacen(
            "<svg ",
            &format!("<svg role=\"img\" aria-label=\"{title}\" style=\"min-width:{least}px\" "),
            1,
        );
        self.html += &format!(
            "<figure>\n<figcaption><b>{title}</b>{legend}</figcaption>\n<div class=\"drawing\">{svg}</div></figure>\n"
        );
    }

    /// Small charts, as many beside each other as there is room for: of each what [`chart`](Self::chart) takes.
    pub fn charts(&mut self, charts: &[(String, String)], legend: &[(RGBColor, &str)]) {
        self.html += "<div class=\"charts\">\n";
        charts.iter().for_each(|(title, svg)| self.chart(title, svg, legend));
        self.html += "</div>\n";
    }

    /// A table; of each row a text or a [`Cell`] for each column. On a narrow page each row is a card.
    pub fn table<C: Clone + Into<Cell>>(&mut self, columns: &[Column], rows: &[Vec<C>]) {
        let class = |column: &Column| match column {
            Column::Text(_) => "",
            Column::Word(_) => " class=\"w\"",
            Column::Number(_) => " class=\"n\"",
        };
        let header: String = columns
            .iter()
            .map(|column| format!("<th{}>{}</th>", class(column), words(column.name())))
            .collect();
        let cell = |(column, cell): (&Column, &C)| {
            let cell: Cell = cell.clone().into();
            let empty = cell.text.is_empty() && cell.beside.is_empty();
            let name = if empty { String::new() } else { attribute("data-name", column.name()) };
            format!("<td{}{}{name}>{}</td>", class(column), attribute("id", &cell.id), cell.html())
        };
        let row =
            |row: &Vec<C>| format!("<tr>{}</tr>\n", columns.iter().zip(row).map(cell).collect::<String>());
        let rows: String = rows.iter().map(row).collect();
        self.html += &format!(
            "<div class=\"wide\"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
        );
    }

    /// Folds the content that `inside` puts in, until a reader asks for it or a link leads into it.
    pub fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Self)) {
        self.html += &format!("<details><summary>{}</summary>\n", words(summary));
        inside(self);
        self.html += "</details>\n";
    }

    /// The whole page.
    pub fn finish(self, footer: &str) -> String {
        let dark: String = DARK
            .iter()
            .map(|(color, dark)| {
                let light = hex(*color);
                format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}\n")
            })
            .collect();
        let contents: String = self
            .headings
            .iter()
            .map(|(id, text)| format!("<li><a href=\"#{id}\">{}</a></li>\n", words(text)))
            .collect();
        let contents = match self.headings.len() {
            ..3 => String::new(),
            _ => format!("<nav aria-label=\"Contents\"><ol>\n{contents}</ol></nav>\n"),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n</head>\n\
             <body>\n{patterns}<h1>{heading}</h1>\n<p class=\"subtitle\">{subtitle}</p>\n{imprint}{contents}{html}\
             <footer>{footer}</footer>\n</body>\n</html>\n",
            title = escape(&self.title),
            patterns = plot::patterns(&DARK.map(|(color, _)| color)),
            heading = words(&self.title),
            subtitle = words(&self.subtitle),
            imprint = self.imprint,
            html = self.html,
            footer = words(footer),
        )
    }
}

/// A number, what it counts, and how that was before.
#[derive(Clone, Debug)]
pub struct Figure<'f> {
    /// The number.
    pub number: String,
    /// The thing that it counts.
    pub label: &'f str,
    /// The same before; empty where that is not known.
    pub before: String,
}

/// A cell of a table. A text is one that leads nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its own id, that others lead to; empty for none.
    pub id: String,
    /// The place in the page that it leads to, by its id; empty for none.
    pub to: String,
    /// A second text beside the first one, less loud.
    pub beside: String,
}

impl Cell {
    fn html(&self) -> String {
        let text = words(&self.text);
        let text = match self.to.as_str() {
            "" => text,
            to => format!("<a href=\"#{}\">{text}</a>", escape(to)),
        };
        let beside = match self.beside.as_str() {
            "" => String::new(),
            beside => format!(" <small>{}</small>", words(beside)),
        };
        if text.is_empty() && beside.is_empty() {
            String::new()
        } else {
            format!("<span>{text}{beside}</span>")
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
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

/// An attribute with its value; nothing where that is empty.
fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{}\"", escape(value)) }
}

/// As plotters writes a colour.
fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_text_and_never_markup() {
        let hostile = "<script>alert(1)</script>\"'&";
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;";
        let mut page = Page::new(hostile, hostile);
        page.imprint(hostile);
        page.heading(hostile);
        page.subheading(hostile, hostile);
        page.paragraph(hostile);
        page.list(&[hostile.to_owned()]);
        page.figures(&[(hostile.to_owned(), hostile)]);
        page.chart(hostile, "<svg width=\"1\"></svg>", &[(RED, hostile)]);
        let mut plot = Plot::new(hostile, 100, 1.0);
        let series = plot.series(hostile, BLOCKED);
        let (to, value) = (Some(hostile.to_owned()), hostile.to_owned());
        plot.bar(Bar { at: (0.0, 1.0), parts: vec![(series, 1.0)], title: hostile.to_owned(), to, value });
        plot.line(series, &[(0.0, 1.0)], &[hostile.to_owned()]);
        plot.shade((0.0, 1.0), hostile);
        plot.upright(0.5, hostile);
        plot.below(0.5, hostile);
        page.plot(&plot);
        let [text, id, to, beside] = [(); 4].map(|()| hostile.to_owned());
        page.table(&[Column::Text("key")], &[vec![Cell { text, id, to, beside }]]);
        page.folded(hostile, |_| ());
        let html = page.finish(hostile);
        assert!(!html.contains("<script"), "{html}");
        let (words, all) = (shown.replace("&lt;/", "&lt;/<wbr>"), html.replace("<wbr>", ""));
        assert!(html.contains(&words), "{words} in {html}");
        assert_eq!(all.matches(shown).count(), 32, "{all}");
    }

    #[test]
    fn three_parts_have_a_table_of_contents() {
        let mut page = Page::new("Cards", "of today");
        page.heading("One");
        page.heading("Two");
        assert!(!page.clone().finish("").contains("<nav"));
        page.heading("Three");
        let html = page.finish("");
        for n in 1..=3 {
            assert!(
                html.contains(&format!("<a href=\"#part-{n}\">"))
                    && html.contains(&format!("<h2 id=\"part-{n}\">"))
            );
        }
    }
}
