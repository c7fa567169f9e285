//! Certificates for servers that speak TLS, made by `openssl`. Knows no server.

use std::path::Path;
use std::process::Command;

/// An authority, and a certificate that it signed. Their files are removed when dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// For the host of this name, good for both ends of a connection.
    pub fn of(host: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
        let make = |more: &str| openssl(folder.path(), &format!("{kind} {more}"));
        make("-subj /CN=authority -keyout ca.key -out ca.pem");
        make(&format!(
            "-subj /CN=node -addext subjectAltName=DNS:{host} -addext basicConstraints=CA:FALSE \
             -CA ca.pem -CAkey ca.key -keyout leaf.key -out leaf.pem"
        ));
        Self { folder }
    }

    /// The authority's certificate.
    pub fn authority(&self) -> String {
        self.file("ca.pem")
    }

    /// The host's certificate.
    pub fn certificate(&self) -> String {
        self.file("leaf.pem")
    }

    /// The key of the host's certificate.
    pub fn key(&self) -> String {
        self.file("leaf.key")
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(folder);
    let made = command.output().expect("openssl");
    assert!(made.status.success(), "openssl {arguments}: {made:?}");
}
