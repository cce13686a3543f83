// What each client does with the server, and what it shows of that: scenario.py for the clients in JavaScript.

import { setTimeout } from "node:timers/promises";
import { text } from "node:stream/consumers";

const EXECUTE = "execute_code";
const MANAGE = "manage_session";
const LIMIT = 60_000; // milliseconds to wait for something that takes a few

/** Plays the scenario. `connect` takes the target and returns a client of either SDK. */
export async function run(connect) {
  const target = JSON.parse(await text(process.stdin));
  const client = await connect(target);
  const watching = target.way === "stdio" ? client : await connect(target);
  const scenario = new Scenario(client, watching, target);
  const seen = await scenario.play();
  await Promise.all([...new Set([client, watching])].map((one) => one.close()));
  process.stdout.write(JSON.stringify(seen));
}

export function address(target) {
  return new URL(`${target.url}/${target.way === "sse" ? "sse" : "mcp"}`);
}

class Scenario {
  constructor(client, watching, target) {
    Object.assign(this, { client, watching, target, messages: [], session: "" });
  }

  async play() {
    const tools = (await bounded(this.client.listTools())).tools.map((tool) => tool.name);
    const shown = {};
    for (const [name, given] of Object.entries(this.target.calls)) {
      shown[name] = await this.shown(this.client, EXECUTE, { ...given, ...(this.session && { session_id: this.session }) });
      this.session ||= found(/^session: (\w+)/m, shown[name].text);
    }
    const cancelled = await this.cancel();
    const givenUp = await this.giveUp();
    const after = await this.shown(this.client, EXECUTE, { code: "x", session_id: this.session });
    await this.shown(this.client, MANAGE, { action: "close", session_id: this.session });
    return { tools, shown, messages: this.messages, cancelled, given_up: givenUp, reports: true, after };
  }

  /** Aborts a call while its code runs. */
  async cancel() {
    const controller = new AbortController();
    const call = this.endless({ signal: controller.signal });
    const run = await bounded(this.begun());
    await bounded(this.reported());
    controller.abort();
    const raised = await call.then(() => "", name);
    return { raised, run: await this.end(run, "cancelled") };
  }

  /** Lets the client wait until its own limit. */
  async giveUp() {
    const error = await bounded(this.endless({ timeout: this.target.patience * 1000 })).catch((error) => error);
    const run = await bounded(this.begun());
    return { raised: name(error), text: error.message, run: await this.end(run, "given_up") };
  }

  endless(options) {
    const given = { code: this.target.endless, session_id: this.session, timeout_seconds: 300 };
    return this.call(this.client, EXECUTE, given, options);
  }

  /** The id of the run, once its code runs. */
  async begun() {
    for (;;) {
      const listed = await this.shown(this.watching, MANAGE, { action: "list", session_id: this.session });
      const match = /run (\w+): running/.exec(listed.text);
      if (match) return match[1];
    }
  }

  async reported() {
    while (!this.messages.join("").includes(this.target.printed)) {
      await new Promise((resolve) => (this.wake = resolve));
    }
  }

  /** What the server says about the run of a call that its client left; then nothing of it runs any more. */
  async end(run, how) {
    const given = { action: "wait", run_id: run, wait_seconds: this.target.settles[how] };
    const status = found(/^status: (\w+)/m, (await this.shown(this.client, MANAGE, given)).text);
    if (status === "running") await this.shown(this.client, MANAGE, { action: "cancel", run_id: run });
    return status;
  }

  async shown(client, tool, given) {
    try {
      return await bounded(this.call(client, tool, given));
    } catch (error) {
      return { text: error.message, images: [], failed: true, raised: name(error) };
    }
  }

  async call(client, tool, given, options = {}) {
    const onprogress = ({ message }) => {
      this.messages.push(message ?? "");
      this.wake?.();
    };
    const result = await client.call({ name: tool, arguments: given }, { onprogress, ...options });
    const blocks = (type, field) => result.content.filter((one) => one.type === type).map((one) => one[field]);
    return { text: blocks("text", "text").join("\n"), images: blocks("image", "data"), failed: !!result.isError, raised: "" };
  }
}

async function bounded(work) {
  const controller = new AbortController();
  const late = setTimeout(LIMIT, null, { signal: controller.signal }).then(() => {
    throw new Error("the client is stuck");
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    controller.abort();
    late.catch(() => {});
  }
}

function name(error) {
  return error.constructor.name;
}

function found(pattern, said) {
  const match = pattern.exec(said);
  if (!match) throw new Error(said);
  return match[1];
}
