//! The Rust of the protocol is what the files in `proto/` give, and speaks with Envoy's own.

use std::path::{Path, PathBuf};

/// The packages, as their Rust is named.
const FILES: [&str; 4] = [
    "envoy.config.core.v3.rs",
    "envoy.extensions.common.ratelimit.v3.rs",
    "envoy.service.ratelimit.v3.rs",
    "envoy.r#type.v3.rs",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Makes the Rust of the protocol; with `TALLYGATE_GENERATE` set it takes the place of what is there.
#[test]
fn the_rust_of_the_protocol_is_what_the_files_give() {
    let made = tempfile::tempdir().unwrap();
    let files = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [folder("proto")]).unwrap();
    tonic_prost_build::configure().build_transport(false).out_dir(made.path()).compile_fds(files).unwrap();
    for file in FILES {
        let (made, kept) = (made.path().join(file), folder("src/proto").join(file));
        let text = std::fs::read_to_string(&made).unwrap();
        if std::env::var_os("TALLYGATE_GENERATE").is_some() {
            std::fs::write(&kept, &text).unwrap();
        }
        let hint = "run it once with TALLYGATE_GENERATE=1";
        assert!(std::fs::read_to_string(&kept).unwrap_or_default() == text, "{file} is out of date: {hint}");
    }
}
