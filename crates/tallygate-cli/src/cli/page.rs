//! Pages of HTML that stand alone: one file without a network, light and dark, for the screen and on paper.

use plotters::style::RGBColor;

use super::output::plain;

// What charts are drawn with. An SVG holds the colours of the light page; the style sheet gives those of the dark one.
pub const FAINT: RGBColor = RGBColor(98, 107, 115);
pub const GRID: RGBColor = RGBColor(222, 222, 216);
pub const GREEN: RGBColor = RGBColor(0, 109, 91);
pub const AMBER: RGBColor = RGBColor(201, 138, 0);
pub const VIOLET: RGBColor = RGBColor(122, 95, 168);
pub const BLUE: RGBColor = RGBColor(74, 124, 155);
pub const RED: RGBColor = RGBColor(196, 60, 48);
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

/// A page in the making.
pub struct Page {
    html: String,
}

impl Page {
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

    pub fn heading(&mut self, text: &str) {
        self.html += &format!("<h2>{}</h2>\n", escape(text));
    }

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

    pub fn finish(self, footer: &str) -> String {
        format!("{}<footer>{}</footer>\n</body>\n</html>\n", self.html, escape(footer))
    }
}

/// A column of a table, by its name.
#[derive(Clone, Copy)]
pub enum Column {
    /// Broken where it must be.
    Text(&'static str),
    /// Short, never broken.
    Word(&'static str),
    Number(&'static str),
}

impl Column {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(name) | Self::Word(name) | Self::Number(name) => name,
        }
    }
}

/// Text that shows itself in HTML, between tags and in attributes.
pub fn escape(text: &str) -> String {
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
}
