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
use send::{Sender, SentRequest};
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

    /// Makes a call. The future is small: what is used only until the request is sent is in a box
    /// that is gone while we wait for the answer, of thousands of calls at once.
    fn call(
        &self,
        request: Request,
        function: &str,
    ) -> impl Future<Output = Result<Response, InvokeError>> {
        let sending = Box::pin(self.send(request));
        async move {
            let sent = sending.await?;
            let answer = self.sender.answer(sent).await;
            let answer = answer.map_err(|failure| failure.of(function))?;
            answer.read(function)
        }
    }

    async fn send(&self, mut request: Request) -> Result<SentRequest, InvokeError> {
        let signed = self.signer.sign(&mut request, &self.place).await?;
        self.endpoint.get_or_init(|| signed.uri().to_owned());
        let sent = self.sender.send(signed).await;
        sent.map_err(|failure| failure.of(&request.function))
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
        match tokio::time::timeout(patience, self.call(request, &function)).await {
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
