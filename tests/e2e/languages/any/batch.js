export const batchHandler = {
  handle(messages) {
    const failed = messages.filter((message) => message.body.val !== "done");
    return failed.map(({ id }) => ({ id, failure: { tag: "reject", val: "not wanted" } }));
  },
};
