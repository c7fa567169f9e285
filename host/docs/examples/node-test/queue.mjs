// One `dispatcher local` for a file of tests.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const EXPORT = "export AWS_ENDPOINT_URL_SQS=";

// Starts it and sets the variables by which the AWS SDK finds it. `reset` deletes all queues.
export async function startQueue() {
  const server = spawn("dispatcher", ["local", "--memory", "--listen", "127.0.0.1:0"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const endpoint = await new Promise((found, failed) => {
    server.once("error", failed);
    server.once("exit", () => failed(new Error("dispatcher local ended")));
    createInterface({ input: server.stderr }).on("line", (line) => {
      if (line.startsWith(EXPORT)) found(line.slice(EXPORT.length).split(" ")[0]);
    });
  });
  Object.assign(process.env, {
    AWS_ENDPOINT_URL_SQS: endpoint,
    AWS_REGION: "us-east-1",
    AWS_ACCESS_KEY_ID: "local",
    AWS_SECRET_ACCESS_KEY: "local",
  });
  return {
    endpoint,
    reset: () => fetch(`${endpoint}/_dispatcher/reset`, { method: "POST" }),
    stop: () => server.kill("SIGTERM"),
  };
}
