//! `dispatcher completions`: prints a shell's completion script.

use super::output;
use crate::error::Failure;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  dispatcher completions bash \\
      > ~/.local/share/bash-completion/completions/dispatcher
  dispatcher completions zsh > ~/.zfunc/_dispatcher
  dispatcher completions fish > ~/.config/fish/completions/dispatcher.fish";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args, command: &mut clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "dispatcher", &mut script);
    output::bytes(&script)
}
