//! Calls AWS Lambda: one Invoke per call, never repeated by the SDK, and reads a function's
//! configuration. Knows no message, no queue and no plugin.

mod answer;
mod connections;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod look;
mod send;
mod sign;
mod sort;

pub use dispatcher_core::lambda::{Invocation, Invoke, InvokeError, Request, Response};
pub use look::Function;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_lambda::Client;
use send::Sender;
use sign::Signer;
use std::sync::{Arc, OnceLock};

/// AWS Lambda in one region. Cheap to clone; clones share connections. There is one connection for
/// each outstanding call and no limit to them but that of open files; idle ones are kept for 60 s.
#[derive(Debug, Clone)]
pub struct Lambda {
    signer: Signer,
    sender: Sender,
    /// For everything but Invoke.
    look: Client,
    place: String,
    region: Option<String>,
    /// The URL of any call: the SDK finds it.
    endpoint: Arc<OnceLock<String>>,
}

impl Lambda {
    /// Connects nothing yet: the first call does.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            signer: Signer::new(config),
            sender: Sender::new(),
            look: Client::new(config),
            place: super::place(config, "LAMBDA"),
            region: config.region().map(ToString::to_string),
            endpoint: Arc::default(),
        }
    }

    async fn answer(&self, mut request: Request) -> Result<Response, InvokeError> {
        // In its own box: it is large, and gone while we wait.
        let signed = Box::pin(self.signer.sign(&mut request, &self.place)).await?;
        self.endpoint.get_or_init(|| signed.uri().to_owned());
        let answer = self.sender.send(&request.function, signed).await?;
        answer.read(&request.function)
    }
}

#[async_trait]
impl Invoke for Lambda {
    fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    fn endpoint(&self) -> Option<&str> {
        self.endpoint.get().map(String::as_str)
    }

    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let patience = request.patience;
        let function = request.function.clone();
        match tokio::time::timeout(patience, self.answer(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(InvokeError::MayHaveRun(format!(
                "Invoke of function `{function}`: no answer in {}",
                humantime::format_duration(patience)
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
