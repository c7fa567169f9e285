//! How this process is called by people and other processes.

/// Its id and machine: `7@host`.
pub fn label() -> String {
    let host = host_name().unwrap_or_else(|| "this-host".to_owned());
    format!("{}@{host}", std::process::id())
}

/// The name of its machine or container, if there is one.
pub fn host_name() -> Option<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let host = host.trim();
    (!host.is_empty()).then(|| host.to_owned())
}
