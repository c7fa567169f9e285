//! Operators' settings of queues: one hash for all queues of a prefix, with a field `QUEUE FIELD`
//! for each text, so that one command reads all that a process needs. Queue names contain no
//! spaces.

use super::Redis;
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::queue::QueueError;
use std::collections::HashMap;

impl Redis {
    /// Returns the operators' settings of each of these queues, by their bare names, also for
    /// queues of npm `worqr`.
    pub async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        let mut pipe = redis::pipe();
        pipe.hgetall(self.keys.controls());
        let (all,): (HashMap<String, String>,) = self.lines.link.pipe(&pipe).await?;
        let mut by_queue: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
        for (name, value) in &all {
            if let Some((queue, field)) = name.split_once(' ') {
                by_queue.entry(queue).or_default().push((field, value));
            }
        }
        let controls = queues
            .iter()
            .map(|queue: &&str| by_queue.remove(*queue).unwrap_or_default());
        Ok(controls.map(QueueControl::of_fields).collect())
    }

    /// Changes the operators' settings of a queue.
    pub async fn change_control(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<(), QueueError> {
        let key = self.keys.controls();
        let mut pipe = redis::pipe();
        pipe.atomic();
        for (field, value) in change.fields() {
            let name = format!("{queue} {field}");
            match value {
                Some(value) => pipe.hset(&key, name, value).ignore(),
                None => pipe.hdel(&key, name).ignore(),
            };
        }
        self.lines.link.pipe::<()>(&pipe).await
    }
}
