// The client of @modelcontextprotocol/sdk, version 1.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { address, run } from "./scenario.mjs";

class Connected extends Client {
  call(params, options) {
    return this.callTool(params, undefined, options);
  }
}

await run(async (target) => {
  const client = new Connected({ name: "test", version: "1" });
  const kinds = { http: StreamableHTTPClientTransport, sse: SSEClientTransport };
  const stdio = { command: target.command, args: [] };
  await client.connect(
    target.way === "stdio" ? new StdioClientTransport(stdio) : new kinds[target.way](address(target)),
  );
  return client;
});
