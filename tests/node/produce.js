// Enqueues every ticket of the JSON lines on standard input, each in a message of its own, and prints each result as a
// JSON line. Arguments: the address of the database.
const { createClient } = require("celery-node");
const { readFileSync } = require("node:fs");

const TIMEOUT_MS = 60_000;
const POLL_MS = 100;

async function main(url) {
  const client = createClient(url, url, "classify");
  const task = client.createTask("classify.tickets");
  const lines = readFileSync(0, "utf8").trim().split("\n");
  const sent = lines.map((line) => task.applyAsync([], { tickets: [JSON.parse(line)] }));
  const results = await Promise.all(sent.map((one) => one.get(TIMEOUT_MS, POLL_MS)));
  console.log(results.map((result) => JSON.stringify(result)).join("\n"));
  await client.disconnect();
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
