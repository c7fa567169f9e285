//! The binary. All code is in the library.

/// Replaces the system's allocator, which is slow for messages that are allocated on one thread and
/// freed on another: host/benches/README.md has the numbers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    dispatcher::cli::main()
}
