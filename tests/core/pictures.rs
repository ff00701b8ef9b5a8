//! The pictures in the documents are what the example draws.

#[allow(dead_code, reason = "it is a program of its own")]
#[path = "../../examples/plots.rs"]
mod plots;

use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn the_pictures_of_the_algorithms_are_what_the_core_decides() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms");
    let document = include_str!("../../docs/algorithms.md");
    let drawn: BTreeMap<String, String> = plots::plots().unwrap().into_iter().collect();
    for (name, svg) in &drawn {
        let file = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(file == *svg, "docs/algorithms/{name} is out of date; run: cargo run --example plots");
        assert!(
            document.contains(&format!("](algorithms/{name})")),
            "docs/algorithms.md does not show {name}"
        );
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), drawn.len());
}
