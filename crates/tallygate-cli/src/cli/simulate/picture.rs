//! A simulation as one picture: a row for each traffic, a chart in it for each policy.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use tallygate::page::FAINT;

use super::plot::{self, LEGEND};
use super::told::Played;
use crate::cli::Result;
use crate::cli::backtest::plot::{style, svg};
use crate::cli::output::plain;

const PAPER: RGBColor = RGBColor(250, 250, 247);
const INK: RGBColor = RGBColor(34, 40, 49);

/// The height above the first row, for the legend of the lines.
const LEGEND_HEIGHT: i32 = 26;
/// The height above the charts of a row, for the names of the traffic and of each policy.
const TITLE_HEIGHT: i32 = 46;

/// The picture, as SVG that stands alone.
pub fn picture(played: &[Played]) -> Result<String> {
    let (width, height) = (plot::SIZE.0 as i32, TITLE_HEIGHT + plot::SIZE.1 as i32);
    let columns = played.iter().map(|one| one.policies.len()).max().unwrap_or(1) as i32;
    let size = (columns * width, LEGEND_HEIGHT + played.len() as i32 * height);
    let mut charts = String::new();
    let frame = svg((size.0.unsigned_abs(), size.1.unsigned_abs()), |root| {
        root.fill(&PAPER)?;
        for (n, (color, words)) in (0..).zip(LEGEND) {
            root.draw_text(words, &style(13, &color, HPos::Left), (16 + n * 150, 14))?;
        }
        for (row, one) in (0..).zip(played) {
            let y = LEGEND_HEIGHT + row * height;
            root.draw_text(&one.title(), &style(14, &INK, HPos::Left), (16, y + 12))?;
            for (column, told) in (0..).zip(&one.policies) {
                let passed = format!("{}: {} passed", plain(&told.name), told.figures.passed);
                root.draw_text(&passed, &style(13, &FAINT, HPos::Left), (column * width + 16, y + 32))?;
            }
        }
        Ok(())
    })?;
    for (row, one) in (0..).zip(played) {
        for (column, told) in (0..).zip(&one.policies) {
            let (x, y) = (column * width, LEGEND_HEIGHT + row * height + TITLE_HEIGHT);
            let chart = plot::through(told, &one.policies)?;
            charts += &chart.replacen("<svg ", &format!("<svg x=\"{x}\" y=\"{y}\" "), 1);
        }
    }
    let frame = frame.trim_end().trim_end_matches("</svg>");
    Ok(format!("{frame}{charts}</svg>\n"))
}
