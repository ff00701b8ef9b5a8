//! Texts from elsewhere, and numbers and times, as people read them.

use std::fmt::Display;

use chrono::{DateTime, Utc};

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

/// The person who did it, as was said, and the name by which the session was logged in.
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

/// A number of things, as it is shown: `1 row`, `1,234 rows`.
pub fn many(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// A number in a few characters, for the axis of a chart: `950`, `1.5k`, `20M`.
pub fn short(number: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) if number.is_multiple_of(unit) => format!("{}{name}", number / unit),
        Some((unit, name)) => format!("{:.1}{name}", number as f64 / unit as f64),
        None => count(number),
    }
}

/// A moment, to the second: `2026-03-29 00:59:59`.
pub fn second(moment: DateTime<Utc>) -> String {
    moment.format("%Y-%m-%d %H:%M:%S").to_string()
}

/// Text that shows itself in HTML, between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
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

/// A word that is wider than this, in digits, may be broken.
const WHOLE: usize = 24;

/// The same, between tags only: a word that fits in a line is never broken, and a longer one is where it reads best.
pub(super) fn words(text: &str) -> String {
    let text = plain(text);
    let words = text.split(' ').map(|word| {
        let width: usize = word.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
        let breaks = |c: char| !c.is_ascii_alphanumeric();
        if width > WHOLE {
            let parts: Vec<_> =
                word.split_inclusive(['/', ':', '.', '-', '_', '@', ',', ';', '=', '&', '?']).collect();
            let parts: Vec<_> = parts.into_iter().map(escape).collect();
            format!("<span class=\"long\">{}</span>", parts.join("<wbr>"))
        } else if word.trim_matches(breaks).contains(breaks) {
            format!("<span class=\"whole\">{}</span>", escape(word))
        } else {
            escape(word)
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(["0", "1", "1,000"].map(|number| many(number, "row")), ["0 rows", "1 row", "1,000 rows"]);
    }

    #[test]
    fn only_a_word_that_is_too_long_for_a_line_may_be_broken() {
        assert_eq!(words("a login of card:9f3c"), "a login of <span class=\"whole\">card:9f3c</span>");
        assert_eq!(words("<b> ends."), "&lt;b&gt; ends.");
        let long = format!("{}:{}", "a".repeat(20), "<".repeat(20));
        let shown = format!("<span class=\"long\">{}:<wbr>{}</span>", "a".repeat(20), "&lt;".repeat(20));
        assert_eq!(words(&long), shown);
    }
}
