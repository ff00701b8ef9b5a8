//! Commands that this build leaves out.

use std::ffi::OsString;

use super::{Failure, Result};

/// The arguments of a command that is left out: any.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<OsString>,
}

/// Says which feature brings the command.
pub fn refuse(feature: &str) -> Result {
    Err(Failure::new(format!(
        "this build leaves the command out; the feature {feature} brings it, and full brings everything: cargo install \
         --path crates/tallygate-cli --features {feature}"
    )))
}
