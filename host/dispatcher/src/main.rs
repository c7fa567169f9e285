//! The binary: all of it is in the library.

/// A message is allocated on one thread and freed on another, which the system's allocator does
/// badly: host/benches/README.md has the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    dispatcher::cli::main()
}
