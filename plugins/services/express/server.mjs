// A worker in Express for `dispatcher run --forward http://127.0.0.1:8080/jobs`.
import { createHmac, timingSafeEqual } from "node:crypto";
import express from "express";

const { PORT = "8080", SIGNING_KEY } = process.env;
const app = express();

// Without a key every caller is trusted.
function checkSignature(request, response, raw) {
  if (!SIGNING_KEY) return;
  const [, time, given] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(request.get("x-dispatcher-signature")) ?? [];
  const wanted = createHmac("sha256", SIGNING_KEY).update(`${time}.`).update(raw).digest();
  const fresh = Math.abs(Date.now() / 1000 - time) < 300;
  if (!fresh || !timingSafeEqual(Buffer.from(given, "hex"), wanted)) {
    // Without a status Express would answer 403, which is retried for each message.
    throw Object.assign(new Error("wrong signature"), { status: 401 });
  }
}

app.use(express.json({ verify: checkSignature, limit: "1mb" }));

app.post("/jobs", async (request, response) => {
  const { order } = request.body ?? {};
  if (!Number.isInteger(order)) {
    // Dead-lettered, with this text as the reason.
    return response.status(422).send('wanted {"order": NUMBER}');
  }
  console.log(`order ${order}, attempt ${request.get("x-aws-sqsd-receive-count")}`);
  response.sendStatus(204);
});

// An error that is thrown in a handler is a 500 by default: the message is retried.
const server = app.listen(Number(PORT), "127.0.0.1", () => {
  console.log(`listening at ${server.address().port}`);
});
// Dispatcher closes idle connections after 60 seconds; whoever closes first must not be the service.
server.keepAliveTimeout = 75_000;
