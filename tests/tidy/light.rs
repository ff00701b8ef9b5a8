//! The price of the library to a crate that uses it.

use std::collections::BTreeSet;

use super::{idents, read, sources};

/// The future of an `async fn` is compiled in each crate that awaits it, down to the driver. One with a type parameter is compiled there
/// in any case, and hands on to a box. `benches/build/run full` looks for the driver's functions in what was built.
#[test]
fn a_call_of_a_public_type_is_a_box() {
    let names = idents(&read("src/lib.rs")).into_iter().map(|(name, _)| name);
    let public: BTreeSet<String> = names.filter(|name| name.starts_with(char::is_uppercase)).collect();
    let (mut boxes, mut futures) = (0, Vec::new());
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with("src/")) {
        for block in text.split("\nimpl").skip(1) {
            let block = block.split("\n}\n").next().unwrap_or_default();
            let name = block.trim_start().split([' ', '<']).next().unwrap_or_default();
            // A block with a type parameter begins with it, so that its name is empty.
            if !public.contains(name) {
                continue;
            }
            for method in block.split("\n    pub ").skip(1) {
                let signature = method.split(" {\n").next().unwrap_or_default();
                let is_generic = signature.contains("impl ") || signature.contains("<C: ");
                boxes += usize::from(signature.contains("BoxFuture<"));
                if signature.starts_with("async fn") && !is_generic {
                    futures.push(format!("{path}: {name}::{signature}"));
                }
            }
        }
    }
    assert!(boxes > 60, "only {boxes} boxes were found: the reading is at fault");
    assert!(futures.is_empty(), "return a BoxFuture: {futures:#?}");
}
