//! Checks a route that sends its messages to another queue and so has no plugin. Opens nothing.

use super::Check;
use crate::flags::Flags;
use crate::problem::Problem;
use crate::queues;
use crate::section::{Layers, Section, WrittenValue};
use crate::{Code, PluginConfig, PluginSettings, Trials, WeightedQueue};

impl Check {
    /// Returns what stands in place of the plugin of a route that sends to the queue `given`. It has
    /// the bare name of that queue. `section` is the route's own, and `queues` are those that it
    /// reads.
    pub(in crate::check) fn relay(
        &mut self,
        given: &WrittenValue,
        section: &Section,
        flags: &Flags,
        queues: &[WeightedQueue],
    ) -> PluginConfig {
        let of_file = if section.has("send-to") {
            section.one("plugin")
        } else {
            None
        };
        for of_plugin in flags.plugin.all().chain(of_file) {
            let found = format!(
                "a setting of a plugin, and the route sends its messages to `{}` ({})",
                given.text, given.at
            );
            let wanted = "either a plugin or `send-to`";
            let problem = Problem::new(&of_plugin.at, found, wanted);
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
        let target = self.read(Some(given), |given| queues::target(given, queues));
        let bare = given.text.trim().rsplit(['/', ':']).next();
        PluginConfig {
            name: bare.unwrap_or_default().to_owned(),
            at: given.at.clone(),
            code: target.map_or(Code::Missing, Code::Relay),
            queue_prefix: self.prefix.clone(),
            settings: PluginSettings::read(Layers(&[]), &mut self.problems),
            reuse: None,
            trials: Trials::default(),
        }
    }
}
