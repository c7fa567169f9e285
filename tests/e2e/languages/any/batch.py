from wit_world import exports
from wit_world.imports import types


class BatchHandler(exports.BatchHandler):
    def handle(self, messages: list[types.Message]) -> list[types.Failed]:
        failed = [message for message in messages if message.body.value != "done"]
        return [types.Failed(message.id, types.Failure_Reject("not wanted")) for message in failed]
