//! The ends of tasks: one that died must not read like one that found nothing.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{sources, tokens, without_tests};

#[test]
fn the_end_of_each_task_is_looked_at() {
    let mut seen = 0;
    for (path, text) in sources() {
        seen += text.matches("spawn(").count();
        let found = forgotten(&text);
        assert!(found.is_empty(), "{path}: tasks whose end nobody looks at, by line: {found:?}");
    }
    assert!(seen > 20, "only {seen} tasks were found: the reading is at fault");
}

/// The lines at which a task is spawned and let go.
fn forgotten(text: &str) -> Vec<usize> {
    let stream = without_tests(tokens(text));
    let joined =
        sets(stream.clone()).into_iter().filter(|name| text.contains(&format!("{name}.join_next()")));
    let (joined, mut found) = (joined.collect(), Vec::new());
    statements(stream, &joined, &mut found);
    found
}

/// The names of all sets of tasks.
fn sets(stream: TokenStream) -> BTreeSet<String> {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let words: Vec<String> = trees.iter().map(ToString::to_string).collect();
    let made = words.windows(3).filter(|words| words[1] == "=" && words[2] == "JoinSet");
    let mut found: BTreeSet<String> = made.map(|words| words[0].clone()).collect();
    for tree in trees {
        if let TokenTree::Group(group) = tree {
            found.extend(sets(group.stream()));
        }
    }
    found
}

fn statements(stream: TokenStream, joined: &BTreeSet<String>, found: &mut Vec<usize>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let ends = |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ';');
    let is_block =
        |tree: &TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    for statement in trees.split_inclusive(ends) {
        let words: Vec<String> = statement.iter().map(ToString::to_string).collect();
        for (at, tree) in statement.iter().enumerate() {
            let TokenTree::Group(group) = tree else { continue };
            statements(group.stream(), joined, found);
            let is_call = group.delimiter() == Delimiter::Parenthesis && at > 0;
            if !is_call || !words[at - 1].starts_with("spawn") {
                continue;
            }
            // A block before it is a statement of its own, without a semicolon.
            let begin = statement[..at].iter().rposition(is_block).map_or(0, |block| block + 1);
            let (before, after) = (words[begin..at - 1].concat(), words[at + 1..].concat());
            let is_kept = before.contains('=') && !before.starts_with("let_=") || before.contains("return");
            let is_joined = before.strip_suffix('.').is_some_and(|name| joined.contains(name));
            if !is_kept && !is_joined && [";", ".await.ok();"].contains(&after.as_str()) {
                found.push(group.span_open().start().line);
            }
        }
    }
}

#[test]
fn a_task_that_is_let_go_is_seen() {
    let lines = |text: &str| forgotten(&format!("fn f() {{\n{text}\n}}"));
    for let_go in [
        "spawn(a);",
        "tokio::spawn(a());",
        "runtime.spawn(a);",
        "let _ = spawn(a);",
        "let _ = tokio::spawn(a);",
        "spawn_blocking(a).await.ok();",
        "if a { spawn(b); }",
        "match a { b => {} } spawn(c);",
        "let mut set = JoinSet::new(); set.spawn(a);",
    ] {
        assert_eq!(lines(let_go), [2], "{let_go}");
    }
    for looked_at in [
        "let a = spawn(b);",
        "a.push(spawn(b));",
        "spawn(a).await?;",
        "*a = Some(spawn(b));",
        "spawn(a)",
        "return spawn(a);",
        "let mut set = JoinSet::new(); set.spawn(a); while let Some(b) = set.join_next().await { c(b) }",
    ] {
        assert_eq!(lines(looked_at), [0; 0], "{looked_at}");
    }
}
