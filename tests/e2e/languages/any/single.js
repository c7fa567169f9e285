import { send } from "dispatcher:plugin/http@0.1.0";

function reject(why) {
  return { tag: "reject", val: why };
}

function getByContract(url) {
  try {
    return send({ method: "GET", url, headers: [], body: new Uint8Array(), truncate: false }).status;
  } catch (error) {
    // What a function of the contract returns as an error is the exception's `payload`.
    throw error.payload ? reject(String(error.payload.val)) : error;
  }
}

async function getByFetch(url) {
  try {
    return (await fetch(url)).status;
  } catch (error) {
    throw reject(error.message);
  }
}

export const handler = {
  async handle(message) {
    const [verb, url] = message.body.val.split(" ");
    let status = 200;
    switch (verb) {
      case "done":
        console.log("handled done");
        break;
      case "later":
        throw { tag: "retry", val: { after: 5000n, reason: "not yet" } };
      case "http":
        status = getByContract(url);
        break;
      case "wasi":
        status = await getByFetch(url);
        break;
      default:
        throw reject("not wanted");
    }
    if (status !== 200) throw reject(`status ${status}`);
  },
};
