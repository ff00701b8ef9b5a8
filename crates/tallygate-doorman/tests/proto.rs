//! The Rust of the protocol is what the file in `proto/` gives.

use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Makes the Rust of the protocol; with `TALLYGATE_GENERATE` set it takes the place of what is there.
#[test]
fn the_rust_of_the_protocol_is_what_the_file_gives() {
    let made = tempfile::tempdir().unwrap();
    let files = protox::compile(["doorman.proto"], [folder("proto")]).unwrap();
    tonic_prost_build::configure().build_transport(false).out_dir(made.path()).compile_fds(files).unwrap();
    let kept = folder("src/proto/doorman.rs");
    let text = std::fs::read_to_string(made.path().join("doorman.rs")).unwrap();
    if std::env::var_os("TALLYGATE_GENERATE").is_some() {
        std::fs::write(&kept, &text).unwrap();
    }
    let hint = "run it once with TALLYGATE_GENERATE=1";
    assert!(std::fs::read_to_string(&kept).unwrap() == text, "doorman.rs is out of date: {hint}");
}
