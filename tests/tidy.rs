//! The rules of the house that a compiler does not know: who may import whom, what `src` never holds, and
//! how routines are described. Rust is read as tokens, so comments and strings are never taken for code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

#[path = "tidy/words.rs"]
mod words;

#[path = "tidy/light.rs"]
mod light;

#[path = "tidy/tasks.rs"]
mod tasks;

/// The rooms of `src`, from the plain values up: a room may name those of its own layer and of the layers
/// below it, and no two of them each other. `lib` is the door, not a room: it only names what is public.
const LAYERS: [&[&str]; 5] = [
    &["boxed", "error", "names", "page", "private", "zone", "check", "decision", "entry"],
    &["chain", "decide", "item", "lease", "record", "retry", "shard", "testing"],
    &["engine"],
    &["store", "migrate"],
    &["limiter", "audit", "backtest"],
];

/// The rooms that know a database.
const KNOW_SQLX: [&str; 2] = ["store", "migrate"];

#[test]
fn imports_point_down_only() {
    let public = public_names(&read("src/lib.rs"));
    let mut seen = 0;
    for (path, text) in sources() {
        let Some(room) = room(&path) else { continue };
        for arrow in arrows(&module(&path), &text, &public) {
            let verdict = judge(&room, &arrow.to);
            assert!(verdict.is_ok(), "{path}:{}: {}", arrow.line, verdict.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} imports were found: the reading is at fault");
}

/// Rooms of one layer may know each other, one way.
#[test]
fn no_two_rooms_need_each_other() {
    let public = public_names(&read("src/lib.rs"));
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let Some(room) = room(&path) else { continue };
        let arrows = arrows(&module(&path), &text, &public).into_iter().map(|arrow| arrow.to);
        needs.entry(room.clone()).or_default().extend(arrows.filter(|to| *to != room));
    }
    assert!(needs.len() > 10, "only {} rooms were found: the reading is at fault", needs.len());
    assert_eq!(circle(&needs), None, "each of these needs the next one");
}

#[test]
fn only_stores_know_sqlx() {
    for (path, text) in sources() {
        // The door hands it on to callers.
        let knows =
            path == "src/lib.rs" || room(&path).is_some_and(|room| KNOW_SQLX.contains(&room.as_str()));
        for (name, line) in idents(&text) {
            assert!(knows || name != "sqlx", "{path}:{line}: only the stores and migrate may name sqlx");
        }
    }
}

#[test]
fn nothing_panics_by_design() {
    for (path, text) in sources() {
        let found = panics(without_tests(tokens(&text)));
        assert!(found.is_empty(), "{path}: where an error is due, by line: {found:?}");
    }
}

#[test]
fn nothing_is_decided_in_floating_point() {
    for (path, text) in sources() {
        if room(&path).as_deref() == Some("decide") {
            let found = floats(tokens(&text));
            assert!(found.is_empty(), "{path}: floats in a decision, by line: {found:?}");
        }
    }
}

#[test]
fn each_routine_has_a_file_of_its_name_and_a_header() {
    for database in ["postgres", "mysql"] {
        let routines: BTreeMap<String, String> = files(&format!("sql/{database}"))
            .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), read(&path)))
            .collect();
        assert!(routines.len() > 5, "the routines of {database}");
        for (name, text) in &routines {
            if let Err(fault) = routine(name, text, &routines) {
                panic!("sql/{database}/{name}.sql: {fault}");
            }
        }
    }
}

#[test]
fn columns_are_listed() {
    for path in ["sql", "migrations", "src"].into_iter().flat_map(files) {
        if path.extension().is_some_and(|extension| extension == "sql") {
            assert!(!selects_all(&read(&path)), "{}: list the columns", path.display());
        }
    }
}

/// A locked row that is skipped reads like a row that is not there. So none is, but where the caller asks for it
/// and the answer tells the two apart.
#[test]
fn no_lock_is_skipped() {
    // Upkeep leaves what others hold for its next run, and all of it to another one at work; nothing is decided by what
    // it finds.
    let upkeep = [
        "src/store/mysql/upkeep/alone.sql",
        "src/store/mysql/upkeep/heads_idle.sql",
        "src/store/mysql/upkeep/holding.sql",
        "src/store/postgres/upkeep/free.sql",
    ];
    let on_demand = [
        (
            "sql/mysql/zone_engine_append.sql",
            "if p_skip_locked and v_heads > v_new then select json_arrayagg",
        ),
        ("sql/mysql/zone_engine_append_one.sql", "if p_skip_locked then select count(*)"),
        ("sql/postgres/zone_engine_append.sql", "if p_skip_locked then select array_agg"),
        ("sql/postgres/zone_engine_append_one.sql", "if p_skip_locked then perform from zone_bucket_lock b"),
    ];
    for path in ["sql", "migrations", "src"].into_iter().flat_map(files) {
        if upkeep.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        let text = read(&path).to_lowercase();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((_, asked)) = on_demand.iter().find(|(file, _)| path.ends_with(file)) {
            assert_eq!(words.matches("skip locked").count(), 1, "{} has one way to skip", path.display());
            assert!(words.contains(asked), "{} skips only if asked to", path.display());
            continue;
        }
        assert!(!words.contains("skip locked"), "{} skips what others hold", path.display());
    }
}

/// A session may do what it likes to a temporary table that it has, whatever its rights.
#[test]
fn no_routine_makes_a_temporary_table() {
    for path in files("sql") {
        assert!(!read(&path).to_lowercase().contains("temporary table"), "{}", path.display());
    }
}

/// A type that is renamed everywhere can take the place of a word.
#[test]
fn no_comment_begins_with_the_name_of_a_type() {
    let mut types = Vec::new();
    for (_, text) in sources() {
        let words = idents(&text);
        let named = words.windows(2).filter(|pair| ["struct", "enum", "trait"].contains(&pair[0].0.as_str()));
        // A name of one word, such as Zone, may begin a sentence.
        let humps = |name: &str| name.chars().filter(char::is_ascii_uppercase).count();
        types.extend(named.map(|pair| pair[1].0.clone()).filter(|name| humps(name) > 1));
    }
    assert!(types.len() > 20, "only {} types were found: the reading is at fault", types.len());
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    for path in ["src", "crates", "tests"].into_iter().flat_map(files).filter(is_rust) {
        for (number, line) in read(&path).lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let word = comment.trim_start_matches(['/', '!']).split_whitespace().next().unwrap_or_default();
            assert!(
                !types.iter().any(|name| name == word),
                "{}:{}: a comment begins with the type {word}; write a word, or `{word}`",
                path.display(),
                number + 1
            );
        }
    }
}

/// The lists of tables, views and rooms in the documents are held to what there is.
#[test]
fn documents_name_every_table_view_and_room() {
    let named = |document: &str, name: &str| {
        assert!(read(document).contains(&format!("`{name}`")), "{document} lacks `{name}`");
    };
    for database in ["postgres", "mysql", "sqlite"] {
        let mut tables = 0;
        for path in files(&format!("migrations/{database}")) {
            let text = read(&path).replace("if not exists ", "").replace("or replace ", "");
            for (what, document) in [("create table ", "docs/sql.md"), ("create view ", "docs/operations.md")]
            {
                for line in text.lines().filter_map(|line| line.strip_prefix(what)) {
                    named(document, line.split([' ', '(']).next().unwrap_or_default());
                    tables += 1;
                }
            }
        }
        assert!(tables >= 8, "only {tables} tables of {database} were found: the reading is at fault");
    }
    for (path, _) in sources() {
        room(&path)
            .iter()
            .filter(|room| layer(room).is_some())
            .for_each(|room| named("docs/architecture.md", room));
    }
}

// ---- imports ----

struct Arrow {
    to: String,
    line: usize,
}

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

fn judge(from: &str, to: &str) -> Result<(), String> {
    let place = |room: &str| layer(room).ok_or_else(|| format!("{room} has no layer; see LAYERS"));
    let (low, high) = (place(from)?, place(to)?);
    if from == to || high <= low { Ok(()) } else { Err(format!("{from} points up, to {to}")) }
}

/// Every path from the crate's root in a file, resolved to the room that it leads to: in imports with their
/// groups, in code and in the text of macros, by `crate::` and by `super::`.
fn arrows(module: &[String], text: &str, public: &HashMap<String, String>) -> Vec<Arrow> {
    let mut found = Vec::new();
    walk(without_tests(tokens(text)), module.len(), &mut |base, rest, line| {
        for name in heads(rest) {
            let at_root = match base {
                Base::Root => true,
                Base::Up(levels) => levels == 0,
            };
            if at_root {
                let to = public.get(&name).cloned().unwrap_or(name);
                found.push(Arrow { to, line });
            }
        }
    });
    found
}

enum Base {
    /// `crate::`
    Root,
    /// `super::`, with so many modules still around it.
    Up(usize),
}

/// Calls `found` with what follows each `crate::` and each run of `super::`.
fn walk(stream: TokenStream, depth: usize, found: &mut impl FnMut(Base, &[TokenTree], usize)) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        let line = trees[at].span().start().line;
        if is(&trees[at], "crate") && colons(&trees[at + 1..]) {
            found(Base::Root, &trees[at + 3..], line);
            at += 3;
        } else if is(&trees[at], "super") && colons(&trees[at + 1..]) {
            let mut levels = depth;
            while at < trees.len() && is(&trees[at], "super") && colons(&trees[at + 1..]) {
                levels = levels.saturating_sub(1);
                at += 3;
            }
            found(Base::Up(levels), &trees[at..], line);
        } else if is(&trees[at], "mod")
            && let Some(TokenTree::Group(body)) = trees.get(at + 2)
        {
            walk(body.stream(), depth + 1, found);
            at += 3;
        } else {
            if let TokenTree::Group(group) = &trees[at] {
                walk(group.stream(), depth, found);
            }
            at += 1;
        }
    }
}

/// The first names of the paths that go on here: one, or those of a group.
fn heads(rest: &[TokenTree]) -> Vec<String> {
    match rest.first() {
        Some(TokenTree::Ident(name)) => vec![name.to_string()],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let items: Vec<TokenTree> = group.stream().into_iter().collect();
            items
                .split(|tree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ','))
                .flat_map(heads)
                .collect()
        }
        Some(other) => vec![other.to_string()],
        None => Vec::new(),
    }
}

fn is(tree: &TokenTree, name: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == name)
}

fn colons(trees: &[TokenTree]) -> bool {
    let colon = |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(trees.first()) && colon(trees.get(1))
}

/// The public names, and the rooms that they come from: `crate::Error` is `error`.
fn public_names(lib: &str) -> HashMap<String, String> {
    let mut names = HashMap::new();
    walk(tokens(lib), 0, &mut |_, rest, _| {
        let Some(TokenTree::Group(group)) = rest.first() else { return };
        let items: Vec<TokenTree> = group.stream().into_iter().collect();
        for item in items.split(|tree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ',')) {
            let Some(TokenTree::Ident(room)) = item.first() else { continue };
            for name in item.get(3..).map(heads).unwrap_or_default() {
                // A function may be named for its room; the path `crate::decide` is the room either way.
                names.insert(name, room.to_string());
            }
        }
    });
    names
}

/// `src/store/mysql.rs` is `[store, mysql]`; the root files are the root.
fn module(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    match inner {
        "lib" | "main" => Vec::new(),
        _ => inner.split('/').map(str::to_owned).collect(),
    }
}

/// The room of the library that a file is in; None for its door and for other crates, which see only what is public.
fn room(path: &str) -> Option<String> {
    let room = path.strip_prefix("src/")?.trim_end_matches(".rs").split('/').next()?;
    (room != "lib").then(|| room.to_owned())
}

// ---- words ----

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("Rust")
}

fn idents(text: &str) -> Vec<(String, usize)> {
    fn collect(stream: TokenStream, into: &mut Vec<(String, usize)>) {
        for tree in stream {
            match tree {
                TokenTree::Ident(ident) => into.push((ident.to_string(), ident.span().start().line)),
                TokenTree::Group(group) => collect(group.stream(), into),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    collect(tokens(text), &mut found);
    found
}

fn panics(stream: TokenStream) -> Vec<(String, usize)> {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < trees.len() {
        if let TokenTree::Ident(ident) = &trees[at] {
            let name = ident.to_string();
            let called = matches!(trees.get(at + 1), Some(TokenTree::Group(_)));
            let method =
                at > 0 && matches!(&trees[at - 1], TokenTree::Punct(p) if ".:".contains(p.as_char()));
            let bang = matches!(trees.get(at + 1), Some(TokenTree::Punct(p)) if p.as_char() == '!');
            let panics = match name.as_str() {
                "unwrap" | "expect" | "unwrap_err" | "expect_err" => method && called,
                // The last four where nobody reads stdout or stderr any more.
                "panic" | "todo" | "unimplemented" | "print" | "println" | "eprint" | "eprintln" => bang,
                _ => false,
            };
            if panics {
                found.push((name, ident.span().start().line));
            }
        } else if let TokenTree::Group(group) = &trees[at] {
            found.extend(panics(group.stream()));
        }
        at += 1;
    }
    found
}

/// All but the items that stand behind `#[cfg(test)]`.
fn without_tests(stream: TokenStream) -> TokenStream {
    let ends = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(p) => p.as_char() == ';',
        _ => false,
    };
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < trees.len() {
        if is_cfg_test(&trees[at..]) {
            // The item ends with its body, or with a semicolon.
            at += 2;
            while at < trees.len() && !ends(&trees[at]) {
                at += 1;
            }
        } else if let TokenTree::Group(group) = &trees[at] {
            let mut inner = Group::new(group.delimiter(), without_tests(group.stream()));
            inner.set_span(group.span());
            kept.push(inner.into());
        } else {
            kept.push(trees[at].clone());
        }
        at += 1;
    }
    kept.into_iter().collect()
}

/// Rooms of which each needs the next one, and the last the first.
fn circle(needs: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn search(way: &mut Vec<String>, needs: &BTreeMap<String, BTreeSet<String>>) -> bool {
        let last = way.last().cloned().unwrap_or_default();
        needs.get(&last).into_iter().flatten().any(|next| {
            if let Some(begin) = way.iter().position(|room| room == next) {
                way.drain(..begin);
                return true;
            }
            way.push(next.clone());
            let found = search(way, needs);
            if !found {
                way.pop();
            }
            found
        })
    }
    needs.keys().find_map(|room| {
        let mut way = vec![room.clone()];
        search(&mut way, needs).then_some(way)
    })
}

fn is_cfg_test(trees: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = trees else { return false };
    hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

fn floats(stream: TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for tree in stream {
        let line = tree.span().start().line;
        let text = tree.to_string();
        let float = match &tree {
            TokenTree::Ident(_) => text == "f32" || text == "f64",
            TokenTree::Literal(_) => {
                text.starts_with(|c: char| c.is_ascii_digit())
                    && (text.contains('.') || text.ends_with("f32") || text.ends_with("f64"))
                    && !text.starts_with("0x")
            }
            TokenTree::Group(group) => {
                found.extend(floats(Group::stream(group)));
                false
            }
            TokenTree::Punct(_) => false,
        };
        if float {
            found.push((text, line));
        }
    }
    found
}

// ---- routines ----

/// Purpose, arguments, result or locks, and errors, wherever there are any.
fn routine(name: &str, text: &str, all: &BTreeMap<String, String>) -> Result<(), String> {
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    let body = text.lines().skip(header.len()).collect::<Vec<_>>().join("\n");
    let purpose = header.first().and_then(|line| line.strip_prefix(&format!("-- {name}: ")));
    if purpose.is_none_or(|purpose| purpose.trim().is_empty()) {
        return Err(format!("the first line is not `-- {name}: its purpose`"));
    }
    let made = ["function", "procedure", "type"].iter().find_map(|kind| {
        let rest = &body[body.find(&format!("create {kind} "))? + kind.len() + 8..];
        Some((*kind, rest.split(['(', ' ']).next()?, rest[rest.find('(')?..].trim_start_matches('(')))
    });
    let Some((kind, made, arguments)) = made else { return Err("makes no routine".to_owned()) };
    if made != name {
        return Err(format!("makes {made}"));
    }
    if kind == "type" {
        return Ok(());
    }
    let section = |word: &str| header.iter().any(|line| line.starts_with(&format!("-- {word} ")));
    let calls = |other: &str| body.contains(&format!("{other}("));
    let fails = |text: &str| text.contains("-- Errors ");
    let needs = [
        ("Arguments", !arguments.trim_start().starts_with(')')),
        ("Result", kind == "function" && !body.contains("returns void")),
        ("Locks", true),
        (
            "Errors",
            body.contains("signal sqlstate")
                || body.contains("raise exception")
                || all.iter().any(|(other, text)| other != name && calls(other) && fails(text)),
        ),
    ];
    match needs.iter().find(|(word, needed)| *needed && !section(word)) {
        Some((word, _)) => Err(format!("the header does not say: {word}")),
        None => Ok(()),
    }
}

fn selects_all(sql: &str) -> bool {
    let words: Vec<String> = sql.to_lowercase().split_whitespace().map(str::to_owned).collect();
    words.windows(2).any(|pair| pair[0] == "select" && pair[1].starts_with('*'))
        || words.iter().any(|word| word.contains(".*"))
}

// ---- files ----

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() { collect(&path, into) } else { into.push(path) }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    collect(&root.join(folder), &mut found);
    found.sort();
    found.into_iter().map(move |path| path.strip_prefix(root).unwrap().to_owned())
}

/// The Rust of the library and of the crates beside it, by path.
fn sources() -> Vec<(String, String)> {
    let crates = files("crates").filter(|path| path.components().any(|part| part.as_os_str() == "src"));
    files("src")
        .chain(crates)
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (path.to_str().unwrap().to_owned(), read(&path)))
        .collect()
}

/// Shows that these tests see what they look for.
mod sight {
    use super::*;

    fn rooms(path: &str, text: &str) -> Vec<String> {
        let lib = "pub use crate::{error::{Error, Result}, limiter::Limiter, decide::{Head, decide}};";
        arrows(&module(path), text, &public_names(lib)).into_iter().map(|arrow| arrow.to).collect()
    }

    #[test]
    fn every_form_of_an_import_is_seen() {
        let forms = [
            ("use crate::limiter::Limiter;", &["limiter"][..]),
            (
                "use crate::{error::{Error, Result}, store::{self, url::{Address, Engine}}};",
                &["error", "store"],
            ),
            ("use {crate::zone::Zone, std::fmt, crate::limiter as l};", &["zone", "limiter"]),
            ("pub(crate) use crate::Limiter;", &["limiter"]),
            (
                "fn f() -> crate::Error { crate::limiter::x::<crate::zone::Y>() }",
                &["error", "limiter", "zone"],
            ),
            ("macro_rules! m { () => { $crate::cli::run() } }", &["cli"]),
            ("fn f() { m!(a, [crate::cli::run()]); }", &["cli"]),
            ("impl From<crate::limiter::Config> for X {}", &["limiter"]),
            ("mod tests { use super::*; use crate::cli; }", &["cli"]),
            ("// use crate::limiter;\n/// [`x`](crate::limiter)\nconst A: &str = \"crate::limiter\";", &[]),
            ("use crate::decide::{Head, decide};", &["decide"]),
            ("use crate::*;", &["*"]),
        ];
        for (text, expected) in forms {
            assert_eq!(rooms("src/store.rs", text), expected, "{text}");
        }
    }

    #[test]
    fn super_is_followed_to_the_root() {
        assert_eq!(rooms("src/zone.rs", "use super::limiter::Limiter;"), ["limiter"]);
        assert_eq!(rooms("src/store/mysql.rs", "use super::url::Address;"), [""; 0]);
        assert_eq!(rooms("src/store/mysql.rs", "use super::super::{limiter, zone};"), ["limiter", "zone"]);
        assert_eq!(rooms("src/zone.rs", "mod inner { use super::x; use super::super::cli; }"), ["cli"]);
    }

    #[test]
    fn an_arrow_that_points_up_is_caught() {
        for (from, to) in [("error", "decide"), ("zone", "store"), ("decide", "store"), ("store", "limiter")]
        {
            assert!(judge(from, to).unwrap_err().contains("points up"), "{from} to {to}");
            assert!(judge(to, from).is_ok(), "{to} to {from}");
        }
        assert!(judge("zone", "*").is_err() && judge("pantry", "zone").is_err(), "each room has a layer");
    }

    #[test]
    fn a_circle_is_caught() {
        let needs = |pairs: &[(&str, &str)]| {
            let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (from, to) in pairs {
                needs.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            circle(&needs)
        };
        assert_eq!(needs(&[("a", "b"), ("a", "c"), ("b", "c")]), None);
        assert_eq!(needs(&[("z", "a"), ("a", "b"), ("b", "c"), ("c", "a")]).unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn what_panics_is_seen_and_tests_may() {
        let seen = |text: &str| {
            panics(without_tests(tokens(text))).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            seen("fn f() { a.unwrap(); b.expect(\"b\"); panic!(); todo!() }"),
            ["unwrap", "expect", "panic", "todo"]
        );
        assert_eq!(seen("fn f() { v.map(Option::unwrap); v.map(|x| Option::unwrap(x)) }"), ["unwrap"]);
        assert_eq!(
            seen("#[cfg(test)] mod tests { fn f() { a.unwrap(); } } fn g() { unimplemented!() }"),
            ["unimplemented"]
        );
        assert_eq!(seen("#[cfg(test)] use x::y; fn g() { a.unwrap() }"), ["unwrap"]);
        assert_eq!(seen("fn f() { eprintln!(\"a\"); writeln!(out, \"a\").ok(); print(a) }"), ["eprintln"]);
        assert_eq!(
            seen("/// a.unwrap()\n#[expect(dead_code)] fn f() { a.unwrap_or(1); \"panic!\"; }"),
            [""; 0]
        );
    }

    #[test]
    fn floats_and_stars_are_seen() {
        assert_eq!(floats(tokens("fn f(a: f64) { 1.5; 2f32; 1..2; 0x1f32; pair.0; \"1.5\" }")).len(), 3);
        assert!(selects_all("SELECT\n  * from t") && selects_all("select t.* from t"));
        assert!(!selects_all("select count(*), a * b from t"));
    }

    #[test]
    fn a_header_that_lacks_something_is_caught() {
        let all = BTreeMap::from([("deep".to_owned(), "-- deep: x\n-- Errors TG001".to_owned())]);
        let check = |text: &str| routine("z", text, &all);
        let good = "-- z: does\n-- Arguments a\n-- Result r\n-- Locks none\n-- Errors TG001\ncreate function z(a int) begin deep(); end";
        assert_eq!(check(good), Ok(()));
        for lacking in
            ["-- Arguments a\n", "-- Result r\n", "-- Locks none\n", "-- Errors TG001\n", "z: does"]
        {
            assert!(check(&good.replace(lacking, "")).is_err(), "without {lacking}");
        }
        assert!(check(&good.replace("function z", "function y")).is_err(), "another name");
    }
}
