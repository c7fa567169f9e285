//! The program with one backend more, the example of `host/docs/adding-a-backend.md`. Only tests start
//! it.

fn main() -> std::process::ExitCode {
    dispatcher::cli::main_with(&[&dispatcher_directory::DirectoryBackend])
}
