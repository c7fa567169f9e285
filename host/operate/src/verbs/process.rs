//! The operations on the whole process.

use super::{
    ActionEntry, Form, NoFields, Operation, OperationDeclaration, Target, VerbCall, VerbResult,
};
use crate::objects::{DrainStatus, ReloadResult, ReloadedSettings};
use dispatcher_core::process;

/// Looks for new versions of plugins.
pub struct ReloadVerb;
/// Reads the settings of the process again.
pub struct ReloadSettingsVerb;
/// Stops the process.
pub struct DrainVerb;

#[async_trait::async_trait]
impl Operation for ReloadVerb {
    type Request = NoFields;
    type Answer = ReloadResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "reload-plugins",
            Target::Program,
            "Load new versions of plugins?",
            "Load",
        )],
        ..OperationDeclaration::new(
            "/api/v1/plugins/reload",
            "Checks the files of all plugins again, and runs new versions.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ReloadResult> {
        let (replaced, came) = call.site.reload_plugins().await?;
        Ok((came, ActionEntry::new("plugins", replaced)))
    }
}

#[async_trait::async_trait]
impl Operation for ReloadSettingsVerb {
    type Request = NoFields;
    type Answer = ReloadedSettings;

    const DECLARED: OperationDeclaration = OperationDeclaration::new(
        "/api/v1/process/reload",
        "Reads the configuration file again and applies it, as SIGHUP does.",
    );

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ReloadedSettings> {
        let reloaded = call.site.reload().await?;
        let routes = reloaded.added.len() + reloaded.replaced.len() + reloaded.removed.len();
        Ok((reloaded, ActionEntry::new("routes", routes as u64)))
    }
}

#[async_trait::async_trait]
impl Operation for DrainVerb {
    type Request = NoFields;
    type Answer = DrainStatus;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "drain",
            Target::Program,
            "Stop this process?",
            "Stop the process",
        )
        .destructive()],
        ..OperationDeclaration::new(
            "/api/v1/process/drain",
            "Stops this process, as SIGTERM does.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<DrainStatus> {
        let started = call.site.drain();
        let done = ActionEntry {
            change: Some(("process draining", process::label())),
            ..ActionEntry::new("process", u64::from(started))
        };
        Ok((DrainStatus { started }, done))
    }
}
