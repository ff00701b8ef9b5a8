//! The way in which comments and documents are written: sentences have a subject.

use crate::{files, read};

/// Words that open a clause which stands for a noun and names none, as in "What is asked." or "Who comes first goes
/// first." A reader has to guess the noun: write it, as in "The question." or "The first to come goes first." Questions
/// may begin with these words, and end with a question mark.
const OPENERS: [&str; 13] = [
    "What",
    "Who",
    "Whom",
    "Whose",
    "Whatever",
    "Whoever",
    "Whomever",
    "Whichever",
    "How",
    "So many",
    "So much",
    "As many",
    "As much",
];

#[test]
fn no_comment_begins_with_a_clause_without_a_head() {
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, text) in written() {
        seen += 1;
        found.extend(headless(&path, &text).into_iter().map(|(line, text)| format!("{path}:{line}: {text}")));
    }
    assert!(seen > 500, "only {seen} files were found: the reading is at fault");
    assert!(found.is_empty(), "write the noun that is meant:\n{}", found.join("\n"));
}

/// The summary of an item may not begin with these either: "When it ends." is "The time when it ends." A summary with a
/// comma is a sentence with a main clause, as in "When it ends, nothing is left."
const OPENERS_OF_SUMMARIES: [&str; 11] = [
    "When",
    "Where",
    "Whether",
    "Why",
    "Which",
    "Until when",
    "Since when",
    "Up to when",
    "For how",
    "After how",
    "By which",
];

#[test]
fn no_summary_is_a_clause_without_a_head() {
    let mut found = Vec::new();
    for (path, text) in written() {
        if path.ends_with(".rs") {
            found.extend(headless_summaries(&text).into_iter().map(|line| format!("{path}:{line}")));
        }
    }
    assert!(found.is_empty(), "write the noun that is meant:\n{}", found.join("\n"));
}

/// Every file that holds sentences, by path. Those that a program wrote are not ours to mend.
fn written() -> Vec<(String, String)> {
    ["benches", "clients", "crates", "docs", "examples", "migrations", "sql", "src", "tests"]
        .into_iter()
        .flat_map(files)
        .chain(["CHANGELOG.md", "Cargo.toml", "README.md", "test"].map(Into::into))
        .map(|path| path.to_str().expect("a path in UTF-8").to_owned())
        .filter(|path| {
            !["/proto/", "/target/", "/node_modules/", "/.venv/"].iter().any(|made| path.contains(made))
        })
        .filter(|path| path.ends_with(".md") || mark(path).is_some())
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// The sign that a comment begins with in this file; None where there are none, or none that are looked at.
fn mark(path: &str) -> Option<&'static str> {
    match path.rsplit('.').next()? {
        "rs" | "js" => Some("//"),
        "sql" => Some("--"),
        "toml" | "sh" | "py" | "test" => Some("#"),
        _ => None,
    }
}

/// The sentences that begin with one of the openers and ask nothing, with their lines.
fn headless(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, paragraph) in paragraphs(path, text) {
        for (at, sentence) in sentences(&paragraph) {
            let words = sentence.trim_start_matches(['*', '"', '(', '[', '_']);
            let opens = |opener: &&str| {
                words
                    .strip_prefix(*opener)
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
            };
            let asks = sentence.trim_end_matches(['*', '"', ')', '`', '_', '|', ' ']).ends_with('?');
            if OPENERS.iter().any(opens) && !asks {
                found.push((line + paragraph[..at].matches('\n').count(), sentence.replace('\n', " ")));
            }
        }
    }
    found
}

/// The lines at which the comment of an item begins with such a clause.
fn headless_summaries(text: &str) -> Vec<usize> {
    let lines: Vec<_> =
        text.lines().map(|line| line.trim_start().strip_prefix("///").map(str::trim)).collect();
    let begins = |at: &usize| lines[*at].is_some() && (*at == 0 || lines[*at - 1].is_none());
    let is_headless = |at: &usize| {
        let words = lines[*at..].iter().map_while(|line| line.filter(|line| !line.is_empty()));
        let paragraph = words.collect::<Vec<_>>().join(" ");
        let summary = sentences(&paragraph)[0].1;
        let opens = OPENERS_OF_SUMMARIES.iter().any(|opener| {
            summary.strip_prefix(opener).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        });
        opens && !summary.contains(',') && !summary.ends_with('?')
    };
    (0..lines.len()).filter(begins).filter(is_headless).map(|at| at + 1).collect()
}

/// The paragraphs of a document, or of a file's comments, without the code that they show: each with its first line's
/// number. An item of a list, a heading and a row of a table begin one.
fn paragraphs(path: &str, text: &str) -> Vec<(usize, String)> {
    let mark = mark(path);
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut goes_on) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let line = match mark {
            None => Some(line),
            Some(mark) => line.trim_start().strip_prefix(mark),
        };
        let Some(line) = line else {
            (fenced, goes_on) = (false, false);
            continue;
        };
        let words = if mark.is_some() { line.trim_start_matches(['/', '!']) } else { line }.trim();
        let is_fence = words.starts_with("```");
        fenced ^= is_fence;
        if is_fence || fenced || words.is_empty() {
            goes_on = false;
            continue;
        }
        let inner = words.trim_start_matches(['#', '-', '*', '>', '|', '.', ' ']);
        let inner = inner.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ' ']);
        let begins = ["- ", "* ", "#", "> ", "|"].iter().any(|sign| words.starts_with(sign))
            || words.starts_with(|c: char| c.is_ascii_digit());
        match found.last_mut() {
            Some((_, paragraph)) if goes_on && !begins => {
                paragraph.push('\n');
                paragraph.push_str(words);
            }
            _ => found.push((number + 1, inner.to_owned())),
        }
        goes_on = !words.starts_with('#');
    }
    found
}

/// The sentences of a paragraph, each with the place where it begins.
fn sentences(paragraph: &str) -> Vec<(usize, &str)> {
    let mut begins = vec![0];
    for (at, end) in paragraph.match_indices(['.', '!', '?', ':', '|']) {
        let rest = &paragraph[at + end.len()..];
        let next = rest.trim_start_matches([')', '"', '*', '`', '_']).trim_start();
        let spaced = rest.trim_start_matches([')', '"', '*', '`', '_']).starts_with(char::is_whitespace);
        let capital = next.trim_start_matches(['*', '"', '(', '[', '_']).starts_with(char::is_uppercase);
        // A cell of a table ends its sentence, however the next one begins.
        if spaced && (capital || end == "|") {
            begins.push(paragraph.len() - next.len());
        }
    }
    let ends = begins.iter().skip(1).copied().chain([paragraph.len()]);
    begins.iter().copied().zip(ends).map(|(begin, end)| (begin, paragraph[begin..end].trim_end())).collect()
}

#[test]
fn clauses_without_a_head_are_seen() {
    let lines = |path: &str, text: &str| -> Vec<usize> {
        headless(path, text).into_iter().map(|(line, _)| line).collect()
    };
    assert_eq!(lines("a.rs", "fn f() {}\n/// What is asked.\nfn g() {}\n    //! Who asks."), [2, 4]);
    assert_eq!(
        lines("a.rs", "/// The cost. So many\n/// units are left.\n// It ends.\n// Whatever\n// it was."),
        [1, 4]
    );
    assert_eq!(
        lines("a.sql", "-- zone_x: does.\n-- Whose turn it is: the first one's.\nselect 1; -- no"),
        [2]
    );
    assert_eq!(lines("a.toml", "# How many\nkey = 1 # one"), [1]);
    assert_eq!(
        lines("a.md", "# What it is\n\n- **Who asks** waits.\n| what | How much |\n1. As many as fit."),
        [1, 3, 4, 5]
    );

    let summaries = "/// When it ends.\nend: i64,\n\n/// By which\n/// name. More.\n// Why.\nfn f() {}";
    assert_eq!(headless_summaries(summaries), [1, 4]);
    let summaries = "/// The end.\n/// When it ends.\nfn f()\n/// When it ends, all is over.\nfn g()\n/// Where is it?\nfn h()";
    assert_eq!(headless_summaries(summaries), [0; 0]);

    let good = "/// What is a zone? Where the list changes, it ends. When? Now: whoever asks.\n/// ```\n/// // What it does\n\
                /// ```\nlet a = \"// What\";";
    assert_eq!(lines("a.rs", good), [0; 0]);
    assert_eq!(
        lines("a.md", "## What is a zone?\n\n```sh\n# What follows\n```\nSomewhat. Howe and Whom's"),
        [0; 0]
    );
    assert_eq!(lines("a.md", "| What is it? | `it` |\n| Who asks? | a caller |"), [0; 0]);
}
