//! Handles a batch: a message with the body `done` is done, and any other fails.

use dispatcher::plugin::types::{Body, Failed, Failure, Message};

wit_bindgen::generate!({
    path: "../../../../../../wit",
    world: "plain-batch-handler",
});

struct PlainBatchHandler;

export!(PlainBatchHandler);

impl exports::dispatcher::plugin::batch_handler::Guest for PlainBatchHandler {
    fn handle(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
        let is_failed =
            |message: &Message| !matches!(&message.body, Body::Text(text) if text == "done");
        Ok(messages
            .into_iter()
            .filter(is_failed)
            .map(|message| Failed {
                id: message.id,
                failure: Failure::Reject("not wanted".into()),
            })
            .collect())
    }
}
