//! Charts of bars and lines. They are as wide as the page is, and their words keep their size whatever its width.
//!
//! Places along the chart are parts of its width, 0 to 1, and heights are values from 0 to its top. So a browser stretches what
//! is drawn and not what is written, and no chart is drawn twice for a narrow screen or for paper.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::text::escape;
use super::{FAINT, GRID, hex};

/// The look of a series: a colour, and a pattern by which it is known without colour too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its colour on the light page.
    pub color: RGBColor,
    /// Its pattern.
    pub pattern: Pattern,
}

/// The filling of a bar, and the dashes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Filled; an unbroken line.
    Solid,
    /// Slanted stripes; long dashes.
    Slanted,
    /// Dots; a dotted line.
    Dotted,
    /// Lying stripes; short dashes.
    Lying,
    /// Standing stripes; dashes and dots.
    Standing,
    /// Only tinted; a thin line.
    Tinted,
    /// Crossed lines; dashes and two dots.
    Crossed,
}

impl Pattern {
    const ALL: [Self; 7] =
        [Self::Solid, Self::Slanted, Self::Dotted, Self::Lying, Self::Standing, Self::Tinted, Self::Crossed];

    fn name(self) -> &'static str {
        match self {
            Self::Solid => "solid",
            Self::Slanted => "slanted",
            Self::Dotted => "dotted",
            Self::Lying => "lying",
            Self::Standing => "standing",
            Self::Tinted => "tinted",
            Self::Crossed => "crossed",
        }
    }

    /// The path that is drawn over a tint of the colour, in a tile, and the turn of the tile.
    fn tile(self) -> (&'static str, &'static str) {
        match self {
            Self::Solid => ("M0 0h6v6h-6z", ""),
            Self::Slanted => ("M0 0h3v6h-3z", " patternTransform=\"rotate(45)\""),
            Self::Dotted => ("M1 1h3v3h-3z", ""),
            Self::Lying => ("M0 0h6v2h-6z", ""),
            Self::Standing => ("M0 0h2v6h-2z", ""),
            Self::Tinted => ("", ""),
            Self::Crossed => ("M0 0h1v6h-1zM0 0h6v1h-6z", ""),
        }
    }

    fn dashes(self) -> &'static str {
        match self {
            Self::Solid | Self::Tinted => "",
            Self::Slanted => " stroke-dasharray=\"9 4\"",
            Self::Dotted => " stroke-dasharray=\"2 3\"",
            Self::Lying => " stroke-dasharray=\"5 3\"",
            Self::Standing => " stroke-dasharray=\"9 3 2 3\"",
            Self::Crossed => " stroke-dasharray=\"9 3 2 3 2 3\"",
        }
    }
}

impl Mark {
    fn fill(self) -> String {
        match self.pattern {
            Pattern::Solid => hex(self.color),
            pattern => format!("url(#{}-{})", pattern.name(), &hex(self.color)[1..]),
        }
    }
}

/// The patterns of these colours, to be in a page once.
pub(super) fn patterns(colors: &[RGBColor]) -> String {
    let mut defs = String::new();
    for color in colors {
        for pattern in Pattern::ALL.into_iter().filter(|pattern| *pattern != Pattern::Solid) {
            let (color, (path, turned)) = (hex(*color), pattern.tile());
            let _ = write!(
                defs,
                "<pattern id=\"{}-{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"{turned}>\
                 <rect width=\"6\" height=\"6\" fill=\"{color}\" fill-opacity=\".28\"/><path d=\"{path}\" \
                 fill=\"{color}\"/></pattern>",
                pattern.name(),
                &color[1..],
            );
        }
    }
    format!(
        "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>{defs}</defs></svg>\n"
    )
}

/// A bar from one place to another, with its parts upon each other.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Where it begins and ends, as parts of the width.
    pub at: (f64, f64),
    /// Of each part its series and how high it is, from the bottom up.
    pub parts: Vec<(usize, f64)>,
    /// The same in words: the browser shows it over the bar.
    pub title: String,
    /// The place in the page that it leads to, by its id.
    pub to: Option<String>,
    /// A text above it; empty for nothing.
    pub value: String,
}

/// A chart in the making.
///
/// ```
/// use tallygate::page::{ALLOWED, BLOCKED, Bar, Page, Plot};
/// let mut plot = Plot::new("Checks per day", 200, 30.0);
/// let (allowed, blocked) = (plot.series("allowed", ALLOWED), plot.series("blocked", BLOCKED));
/// let title = "9 Nov: 17 allowed, 3 blocked".to_owned();
/// plot.bar(Bar { at: (0.1, 0.4), parts: vec![(allowed, 17.0), (blocked, 3.0)], title, ..Bar::default() });
/// plot.below(0.25, "9 Nov");
/// let mut page = Page::new("Cards", "of today");
/// page.plot(&plot);
/// ```
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    height_px: u32,
    most: f64,
    top: f64,
    step: f64,
    unit: fn(f64) -> String,
    series: Vec<(String, Mark)>,
    used: Vec<bool>,
    behind: String,
    drawn: String,
    above: String,
    below: Vec<(f64, String)>,
    shaded: Option<String>,
}

impl Plot {
    /// A chart whose highest value is `most`. Its axis ends at a round number that is no less.
    pub fn new(title: &str, height_px: u32, most: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let mut plot = Self {
            title: title.to_owned(),
            height_px,
            most,
            top: 0.0,
            step: 0.0,
            unit: |value| super::text::short(value.round() as u64),
            series: Vec::new(),
            used: Vec::new(),
            behind: String::new(),
            drawn: String::new(),
            above: String::new(),
            below: Vec::new(),
            shaded: None,
        };
        plot.steps(round_step(most).max(1.0));
        plot
    }

    /// Writes the values beside the axis in this way. Where nothing is said they are whole numbers.
    pub fn unit(mut self, unit: fn(f64) -> String) -> Self {
        self.unit = unit;
        self.steps(round_step(self.most));
        self
    }

    fn steps(&mut self, step: f64) {
        self.step = step;
        self.top = (self.most / step - 1e-9).ceil() * step;
    }

    /// One more series, to be named by the number that is returned. The legend tells of those that were drawn.
    pub fn series(&mut self, name: &str, mark: Mark) -> usize {
        self.series.push((name.to_owned(), mark));
        self.used.push(false);
        self.series.len() - 1
    }

    /// Draws a bar. A part of a series that there is not, or of nothing, is left out.
    pub fn bar(&mut self, bar: Bar) {
        let (from, to) = bar.at;
        let (x, width) = (percent(from), percent(to - from));
        let mut below = 0.0;
        let mut parts = String::new();
        for (series, value) in bar.parts {
            let Some((_, mark)) = self.series.get(series).filter(|_| value > 0.0) else { continue };
            let (y, height) = (percent(1.0 - (below + value) / self.top), percent(value / self.top));
            let _ = write!(
                parts,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{}\"/>",
                mark.fill()
            );
            self.used[series] = true;
            below += value;
        }
        // Small bars are found by the pointer too.
        let all = format!(
            "<g><title>{}</title><rect class=\"all\" x=\"{x}\" y=\"0\" width=\"{width}\" height=\"100%\"/>{parts}</g>",
            escape(&bar.title)
        );
        self.drawn += &match &bar.to {
            Some(to) => format!("<a href=\"#{}\">{all}</a>\n", escape(to)),
            None => all + "\n",
        };
        if !bar.value.is_empty() {
            let (left, bottom) = (percent((from + to) / 2.0), percent(below / self.top));
            let value = escape(&bar.value);
            let _ =
                write!(self.above, "<b class=\"value\" style=\"left:{left};bottom:{bottom}\">{value}</b>");
        }
    }

    /// Draws a line through places and values. Where there are titles, each point is marked and has its own.
    pub fn line(&mut self, series: usize, points: &[(f64, f64)], titles: &[String]) {
        let Some((_, mark)) = self.series.get(series) else { return };
        let color = hex(mark.color);
        let place =
            |&(x, y): &(f64, f64)| format!("{:.2},{:.2}", x * 1_000.0, (1.0 - y / self.top) * 1_000.0);
        let places: Vec<_> = points.iter().map(place).collect();
        let width = if mark.pattern == Pattern::Tinted { 1.2 } else { 2.2 };
        let _ = writeln!(
            self.drawn,
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\"><polyline points=\"{}\" fill=\"none\" \
             stroke=\"{color}\" stroke-width=\"{width}\"{} vector-effect=\"non-scaling-stroke\"/></svg>",
            places.join(" "),
            mark.pattern.dashes(),
        );
        for ((x, y), title) in points.iter().zip(titles) {
            let _ = writeln!(
                self.drawn,
                "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{color}\"><title>{}</title></circle>",
                percent(*x),
                percent(1.0 - y / self.top),
                escape(title)
            );
        }
        self.used[series] = true;
    }

    /// Shades the chart from one place to another, with what that says.
    pub fn shade(&mut self, (from, to): (f64, f64), name: &str) {
        let _ = writeln!(
            self.behind,
            "<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"100%\" fill=\"{}\"><title>{}</title></rect>",
            percent(from),
            percent(to - from),
            SHADE.fill(),
            escape(name)
        );
        self.shaded = Some(name.to_owned());
    }

    /// Draws a line from the bottom to the top, with what stands there: the policy in force, say.
    pub fn upright(&mut self, at: f64, name: &str) {
        let (x, name) = (percent(at), escape(name));
        let stroke = hex(FAINT);
        let _ = writeln!(
            self.behind,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"100%\" stroke=\"{stroke}\" \
             stroke-dasharray=\"3 3\"><title>{name}</title></line>"
        );
        let side = if at > 0.7 { " left" } else { "" };
        let _ = write!(self.above, "<span class=\"upright{side}\" style=\"left:{x}\">{name}</span>");
    }

    /// Writes below the axis, in the order of the places. Some eight labels find room; on a narrow page every other one is
    /// left out.
    pub fn below(&mut self, at: f64, label: &str) {
        self.below.push((at, label.to_owned()));
    }

    pub(super) fn html(&self) -> String {
        let mut drawn = String::new();
        let mut beside = String::new();
        for n in 0..=(self.top / self.step).round() as u32 {
            let value = f64::from(n) * self.step;
            let (y, bottom) = (percent(1.0 - value / self.top), percent(value / self.top));
            let color = hex(if n == 0 { FAINT } else { GRID });
            let _ = write!(drawn, "<line x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\" stroke=\"{color}\"/>");
            let label = escape(&(self.unit)(value));
            let _ = write!(beside, "<span class=\"beside\" style=\"bottom:{bottom}\">{label}</span>");
        }
        let below: String = (self.below.iter().enumerate())
            .map(|(n, (at, label))| {
                let other = if n % 2 == 1 { " other" } else { "" };
                let end = if *at > 0.9 { " end" } else { "" };
                format!(
                    "<span class=\"below{other}{end}\" style=\"left:{}\">{}</span>",
                    percent(*at),
                    escape(label)
                )
            })
            .collect();
        let drawn_series =
            self.series.iter().zip(&self.used).filter(|(_, used)| **used).map(|(series, _)| series);
        let shaded = self.shaded.iter().map(|name| (name.clone(), SHADE));
        let legend: String =
            drawn_series.cloned().chain(shaded).map(|(name, mark)| swatch(&name, mark)).collect();
        let title = escape(&self.title);
        format!(
            "<figure>\n<figcaption><b>{title}</b>{legend}</figcaption>\n<div class=\"plot\" style=\"height:{}px\">\n\
             <svg role=\"group\" aria-label=\"{title}\">\n{}{drawn}\n{}</svg>\n{beside}{below}{}\n</div>\n</figure>\n",
            self.height_px, self.behind, self.drawn, self.above
        )
    }
}

/// Behind what is drawn.
const SHADE: Mark = Mark { color: GRID, pattern: Pattern::Crossed };

/// An entry of a legend.
pub(super) fn swatch(name: &str, mark: Mark) -> String {
    format!(
        "<span class=\"whole\"><svg width=\"13\" height=\"13\" aria-hidden=\"true\"><rect width=\"13\" height=\"13\" \
         fill=\"{}\"/></svg> {}</span>",
        mark.fill(),
        escape(name)
    )
}

/// A part of the whole, as CSS and SVG have it.
fn percent(part: f64) -> String {
    format!("{:.3}%", part * 100.0)
}

/// 1, 2 or 5 times a power of ten, so that two to five of them make the most.
fn round_step(most: f64) -> f64 {
    let power = 10_f64.powf(most.log10().floor());
    let steps = [0.2, 0.5, 1.0, 2.0].map(|step| step * power);
    steps.into_iter().find(|step| most / step <= 5.0 + 1e-9).unwrap_or(2.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{ALLOWED, BLOCKED};

    #[test]
    fn the_axis_ends_no_lower_than_the_highest_bar_and_has_few_steps() {
        for most in [0.02, 0.3, 1.0, 3.0, 7.0, 10.0, 11.0, 99.0, 1_234.0, 50_000.0] {
            let plot = Plot::new("", 100, most).unit(|share| share.to_string());
            let steps = plot.top / plot.step;
            assert!(
                plot.top >= most && (1.9..=5.1).contains(&steps),
                "{most}: {} by {}",
                plot.top,
                plot.step
            );
        }
        // Counted things have no halves.
        let few = Plot::new("", 100, 2.0);
        assert_eq!((few.top, few.step), (2.0, 1.0));
        assert_eq!(Plot::new("", 100, f64::NAN).top, 1.0);
    }

    #[test]
    fn a_bar_has_its_words_leads_somewhere_and_is_known_without_colour() {
        let mut plot = Plot::new("<checks>", 100, 10.0);
        let (allowed, blocked) = (plot.series("allowed", ALLOWED), plot.series("<blocked>", BLOCKED));
        plot.series("never", ALLOWED);
        let bar = Bar {
            at: (0.25, 0.5),
            parts: vec![(allowed, 5.0), (blocked, 2.5), (99, 1.0)],
            title: "5 & 2".to_owned(),
            to: Some("day".to_owned()),
            value: "7".to_owned(),
        };
        plot.bar(bar);
        let html = plot.html();
        for part in [
            "<a href=\"#day\"><g><title>5 &amp; 2</title>",
            "x=\"25.000%\" y=\"50.000%\" width=\"25.000%\" height=\"50.000%\" fill=\"#006D5B\"",
            "y=\"25.000%\" width=\"25.000%\" height=\"25.000%\" fill=\"url(#slanted-C43C30)\"",
            "left:37.500%;bottom:75.000%",
            "&lt;blocked&gt;",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(!html.contains("never"), "{html}");
        assert!(patterns(&[BLOCKED.color]).contains("id=\"slanted-C43C30\""));
    }
}
