//! The command `tallygate`, which a package of its own builds beside these tests.

use std::path::PathBuf;

use tokio::process::Command;

/// A call of it on the database at `url`.
pub fn tallygate(url: &str) -> Command {
    let tests = std::env::current_exe().expect("the path of this program");
    let folder = tests.ancestors().nth(2).expect("the folder of what was built").to_owned();
    let program: PathBuf = folder.join("tallygate").with_extension(std::env::consts::EXE_EXTENSION);
    assert!(program.exists(), "{} is not built; run: cargo build", program.display());
    let mut command = Command::new(program);
    command.env("TALLYGATE_DATABASE_URL", url).env_remove("RUST_LOG");
    command
}
