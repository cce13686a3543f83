// The client of @modelcontextprotocol/client, version 2.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { address, run } from "./scenario.mjs";

class Connected extends Client {
  call(params, options) {
    return this.callTool(params, options);
  }
}

await run(async (target) => {
  // By itself it speaks the protocol of 2025; SSE is as old.
  const mode = target.way === "sse" ? "legacy" : "auto";
  const client = new Connected({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  const kinds = { http: StreamableHTTPClientTransport, sse: SSEClientTransport };
  const stdio = { command: target.command, args: [] };
  await client.connect(
    target.way === "stdio" ? new StdioClientTransport(stdio) : new kinds[target.way](address(target)),
  );
  return client;
});
