//! Errors as the command line shows them: one line on stderr, and the exit code that it means.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use super::Result;
use super::exit::Exit;
use super::terminal::tell;

/// The reason why a command did not finish.
pub enum Failure {
    /// A message to be told, with its meaning to a script.
    Error(String, Exit),
    /// The reader of our output has what it wanted (`tallygate history | head`).
    ReaderGone,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self::Error(message.into(), Exit::Error)
    }

    /// The same, with another meaning to a script.
    pub fn meaning(self, exit: Exit) -> Self {
        match self {
            Self::Error(message, _) => Self::Error(message, exit),
            Self::ReaderGone => Self::ReaderGone,
        }
    }

    /// Says what went wrong and gives the exit code.
    pub fn report(self) -> ExitCode {
        self.tell();
        match self {
            Self::Error(_, exit) => exit.into(),
            // As if by SIGPIPE, which ends other programs there: the answer was not told to its end.
            Self::ReaderGone => ExitCode::from(141),
        }
    }

    /// Says what went wrong.
    pub fn tell(&self) {
        if let Self::Error(message, _) = self {
            tell(format_args!("error: {}", one_line(message)));
        }
    }
}

/// A verdict that is reached stands also where nobody reads the words.
pub fn verdict(told: Result<()>, exit: Exit) -> Result {
    match told {
        Ok(()) | Err(Failure::ReaderGone) => Ok(exit.into()),
        Err(failure) => Err(failure),
    }
}

impl From<tallygate::Error> for Failure {
    fn from(error: tallygate::Error) -> Self {
        Self::new(error.to_string()).meaning(Exit::of(&error))
    }
}

/// The failure of writing to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(format!("the output could not be written: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

/// Arguments that clap refused, or its help and version, which it counts among errors.
pub fn usage(error: &clap::Error) -> Result {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        let printed = error.print();
        if !error.use_stderr() {
            printed?;
        }
        return Ok(ExitCode::from(error.exit_code() as u8));
    }
    Err(Failure::new(without_urls(&reason(error), std::env::args_os())))
}

/// The fault that clap found, without the advice around it.
pub fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

/// A URL in the wrong place is repeated by clap, and with it its password.
fn without_urls(text: &str, arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    arguments.fold(text.to_owned(), |text, argument| {
        let argument = argument.to_string_lossy();
        match argument.split_once("://") {
            Some((before, secret)) if !secret.is_empty() => {
                let scheme = before.rsplit('=').next().unwrap_or_default();
                text.replace(&format!("{scheme}://{secret}"), &format!("{scheme}://…"))
            }
            _ => text,
        }
    })
}

fn one_line(message: &str) -> String {
    let joined =
        message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    super::output::plain(&joined.replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(one_line("a is missing:\n  <ZONE>\n\n  tip: add it"), "a is missing: <ZONE>; tip: add it");
        assert_eq!(one_line("bell \u{7}"), "bell \\u{7}");
    }

    #[test]
    fn a_url_among_the_arguments_is_not_repeated() {
        let arguments = ["--databse=postgres://a:s3cret@h/d", "mysql://a:s3cret b@h"].map(Into::into);
        let text = "unexpected 'postgres://a:s3cret@h/d' and 'mysql://a:s3cret b@h'";
        assert_eq!(without_urls(text, arguments.into_iter()), "unexpected 'postgres://…' and 'mysql://…'");
    }
}
