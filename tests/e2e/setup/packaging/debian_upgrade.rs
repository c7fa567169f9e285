//! The service of the Debian package over an upgrade and the way back (host/docs/upgrade.md): what the
//! package's scripts ask of systemd, and whether the service works afterwards.

use super::debian::{
    install, leave_as_a_later_version, make_state_folder, package, repacked, service,
};
use super::{ConfinedProgram, main_job_is_done};
use dispatcher_tests::packaging::{MinimalRoot, minimal_root, output_of};

const RUN: &str = "run --config /etc/dispatcher/dispatcher.toml";
const DATA: &str = "--data /var/lib/dispatcher";

/// Stands for systemd, which is not there: writes down what it is called for.
const SYSTEMCTL: &str = "mkdir -p /run/systemd/system && \
    printf '#!/bin/sh\\necho \"$@\" >> /called\\n' > /usr/bin/systemctl && \
    chmod 755 /usr/bin/systemctl";

struct Machine {
    system: MinimalRoot,
}

impl Machine {
    fn service(&self) -> ConfinedProgram<'_> {
        service(self.system.path())
    }

    /// Runs lines of a shell as the machine's root.
    fn shell(&self, script: &str) -> String {
        output_of(self.system.command("sh").args(["-c", script]))
    }

    /// The calls that would change something, since the last time.
    fn called(&self) -> Vec<String> {
        let all = self.shell("touch /called && cat /called && rm /called");
        let changing = all.lines().filter(|call| !call.contains("is-"));
        changing.map(str::to_owned).collect()
    }

    /// A message that nobody receives is there, and another is handled.
    fn works(&self) {
        let held = self.service().run(&format!("peek local:later {DATA}"));
        assert!(held.contains("kept"), "{held}");
        main_job_is_done(&self.service(), RUN);
    }
}

#[test]
fn service_is_restarted_by_an_upgrade_and_works_with_a_backup_after_a_downgrade() {
    let Some(system) = minimal_root("upgrading the package") else {
        return;
    };
    let machine = Machine { system };
    machine.shell(SYSTEMCTL);
    let (_folder, older) = repacked("0.0.8");
    install(&machine.system, &[], &older);
    // Its configuration is an example: it is not started.
    assert_eq!(machine.called(), ["--system daemon-reload"]);
    make_state_folder(&machine.system);
    // systemd shows the service its folder.
    machine.shell("chmod 755 /var/lib/private");
    machine
        .service()
        .run(&format!("send local:later kept {DATA}"));
    machine.works();
    machine.shell(&format!("dispatcher backup /var/backups/before {DATA}"));

    let restarted = ["--system daemon-reload", "try-restart dispatcher.service"];
    let is_restarted = || {
        let called = machine.called();
        assert_eq!(called.first().map(String::as_str), Some(restarted[0]));
        let last = called.last().expect("a call");
        assert!(last.ends_with(restarted[1]), "{called:?}");
        let stops = |call: &String| call.split(' ').any(|word| word == "stop");
        assert!(!called.iter().any(stops), "{called:?}");
    };
    install(&machine.system, &[], package());
    is_restarted();
    machine.works();

    leave_as_a_later_version(&machine.system);
    install(&machine.system, &[], &older);
    is_restarted();
    // The unit does not start it again after this code.
    let mut refused = machine.service().start(RUN);
    assert_eq!(refused.wait_exit(), 2);
    let said = refused.lines(|line| line.contains("newer dispatcher (format 99"));
    assert!(!said.is_empty(), "it names the format");
    machine.shell(
        "cd /var/lib/private && mv dispatcher newer && cp -r /var/backups/before dispatcher && \
         chown -R --reference newer dispatcher",
    );
    machine.works();

    let mut remove = machine.system.command("dpkg");
    output_of(remove.args(["--remove", "dispatcher"]));
    let called = machine.called();
    assert!(called[0].ends_with("stop dispatcher.service"), "{called:?}");
    assert_eq!(called[1..], ["--system daemon-reload"]);
}
