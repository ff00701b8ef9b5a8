/** Asks a server of its own, which TALLYGATE_COMMAND names: node --test */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Tallygate, TallygateError } from "./tallygate.js";

const command = process.env.TALLYGATE_COMMAND;
assert.ok(command, "TALLYGATE_COMMAND names no command: cargo build --package tallygate-cli, then target/debug/tallygate");
const list = JSON.parse(readFileSync(new URL("../conformance/steps.json", import.meta.url), "utf8"));

let folder, server, url;

/** Starts a server, and waits until it says where it listens. */
async function serve(...args) {
  const child = spawn(command, ["serve", "--listen", "127.0.0.1:0", ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const at = await new Promise((resolve, reject) => {
    let told = "";
    child.stderr.setEncoding("utf8").on("data", (text) => {
      told += text;
      const found = told.match(/serving (\S+)\n/);
      if (found) resolve(found[1]);
    });
    child.on("exit", () => reject(new Error(told)));
  });
  return { child, at };
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "tallygate-"));
  writeFileSync(join(folder, "zones.toml"), list.zones);
  const serving = await serve("--zones", "zones.toml");
  [server, url] = [serving.child, serving.at];
});

after(() => {
  server.kill("SIGKILL");
  rmSync(folder, { recursive: true });
});

/** What the list says of an answer is so; what it does not say may be anything. */
function assertSays(answer, expected, at) {
  if (Array.isArray(expected)) {
    assert.equal(answer.length, expected.length, at);
    expected.forEach((each, n) => assertSays(answer[n], each, `${at}, ${n}`));
  } else if (expected !== null && typeof expected === "object") {
    for (const [name, value] of Object.entries(expected)) assertSays(answer[name], value, `${at}, ${name}`);
  } else {
    assert.equal(answer, expected, at);
  }
}

/** A step of the list by the method that a caller would use. */
function ask(limiter, call, { zone, key, txn, ...rest }) {
  const bucket = zone === undefined ? undefined : { zone, key };
  switch (call) {
    case "check":
      return limiter.check(zone, key, { txn, ...rest });
    case "check-all":
      return limiter.checkAll(rest.checks, { txn });
    case "peek":
      return limiter.peek(zone, key, rest);
    case "reserve":
      return limiter.reserve(zone, key, rest.cost, rest.ttl_us / 1_000, { txn });
    case "settle":
      return limiter.settle(txn, rest.cost, bucket).then((recorded) => recorded[0]);
    default:
      return limiter[call](txn, bucket).then((recorded) => recorded[0]);
  }
}

test("it is answered what the list of all faces says", async () => {
  const limiter = new Tallygate(url);
  for (const [n, { call, body, answer, error }] of list.steps.entries()) {
    const at = `step ${n}, ${call}`;
    if (error === undefined) {
      assertSays(await ask(limiter, call, body), answer, at);
    } else {
      await assert.rejects(ask(limiter, call, body), (told) => told instanceof TallygateError && told.code === error, at);
    }
  }
});

test("the history and an explanation are read", async () => {
  const limiter = new Tallygate(`${url}/`);
  const { txn_id } = await limiter.check("faces-login", "read me/ &?");
  const { rows } = await limiter.history({ zone: "faces-login", key: "read me/ &?", limit: 1, before: undefined });
  assert.equal(rows[0].txn_id, txn_id);
  assert.equal((await limiter.explain(txn_id)).rows[0].reproduced, true);
  await assert.rejects(limiter.explain("00000000-0000-4000-8000-000000000000"), { code: "not_found", status: 404 });
});

test("a reservation holds for as long as it was asked for", async () => {
  const held = await new Tallygate(url).reserve("faces-address", "held so long", 1, 60_000);
  assert.equal(Date.parse(held.ends_at) - Date.parse(held.decided_at), 60_000);
});

test("what is asked again is charged once", async () => {
  // Before the server stands somebody who loses the first answers.
  const lost = [];
  const between = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, headers } = request;
    const answer = await fetch(url + request.url, { method, headers: { "Content-Type": headers["content-type"] }, body: Buffer.concat(chunks) });
    const text = await answer.text();
    if (lost.length === 0) return lost.push("closed"), request.socket.destroy();
    if (lost.length === 1) return lost.push("502"), response.writeHead(502).end("<html>Bad Gateway</html>");
    response.writeHead(answer.status, { "Content-Type": "application/json" }).end(text);
  });
  await new Promise((resolve) => between.listen(0, "127.0.0.1", resolve));
  const limiter = new Tallygate(`http://127.0.0.1:${between.address().port}`);
  const decision = await limiter.check("faces-login", "asked again");
  assert.deepEqual(lost, ["closed", "502"]);
  assert.equal(decision.replayed, true);
  assert.equal((await new Tallygate(url).peek("faces-login", "asked again")).remaining, decision.limit - 1);
  between.close();
  between.closeAllConnections();
});

test("a server that is not there, or says nothing, is given up by the deadline", async () => {
  const silent = createServer(() => {});
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const at = `http://127.0.0.1:${silent.address().port}`;
  await assert.rejects(new Tallygate(at, { deadlineMs: 100 }).check("faces-login", "a"), (error) => {
    assert.equal(error.code, "unreachable");
    assert.match(error.txn, /^[0-9a-f-]{36}$/);
    return true;
  });
  silent.close();
  silent.closeAllConnections();
  await assert.rejects(new Tallygate(at, { deadlineMs: 100 }).check("faces-login", "a"), { code: "unreachable" });
});

test("a redirection is not followed", async () => {
  const asked = [];
  const elsewhere = createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(307, { Location: "/elsewhere" }).end();
  });
  await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  const limiter = new Tallygate(`http://127.0.0.1:${elsewhere.address().port}`, { deadlineMs: 100 });
  await assert.rejects(limiter.check("faces-login", "a"), TallygateError).finally(() => {
    elsewhere.close();
    elsewhere.closeAllConnections();
  });
  assert.deepEqual(asked, ["/v1/check"]);
});

test("a token is sent, and who has none is told so", async () => {
  const file = join(folder, "tokens.toml");
  const made = spawnSync(command, ["token", "add", "web", "--role", "app", "--zones", "faces-login", "--file", file]);
  const token = made.stdout.toString().trim();
  const { child, at } = await serve("--tokens", file);
  try {
    assert.equal((await new Tallygate(at, { token }).check("faces-login", "with a token")).allowed, true);
    await assert.rejects(new Tallygate(at, { token }).check("faces-address", "a"), { code: "forbidden" });
    await assert.rejects(new Tallygate(at).check("faces-login", "a"), { code: "unknown_caller", status: 401 });
  } finally {
    child.kill("SIGKILL");
  }
});
