/** A client whose requests all go through one worker of Envoy. */
import { Agent, request as httpRequest } from "node:http";
import type { DecisionRecord } from "../fleet/access-log.js";
import { type Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";

async function connectionsOf(bed: Bed, worker: number): Promise<number> {
  const { host, port } = bed.gateway.settings.listen;
  return bed.gateway.stat(`listener.${host}_${port.toString()}.worker_${worker.toString()}.downstream_cx_active`);
}

/** The kernel chooses who serves a connection: they are made until one lands on `worker`. */
export async function pinned(bed: Bed, worker: number): Promise<Agent> {
  for (let attempt = 0; attempt < 64; attempt++) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const [before, elsewhere] = [await connectionsOf(bed, worker), await connectionsOf(bed, 1 - worker)];
    await postVia(bed, agent, chat(3));
    if ((await connectionsOf(bed, worker)) > before) return agent;
    agent.destroy();
    await until("the connection to be closed", async () => (await connectionsOf(bed, 1 - worker)) === elsewhere);
  }
  throw new Error(`no connection landed on worker ${worker.toString()}`);
}

export function postVia(bed: Bed, agent: Agent, body: unknown, headers: Record<string, string> = {}): Promise<DecisionRecord> {
  const { host, port } = bed.gateway.settings.listen;
  return new Promise((resolve, reject) => {
    const call = httpRequest({ agent, host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", ...headers } }, (answer) => {
      answer.resume();
      answer.on("error", reject);
      answer.on("end", () => {
        const decision = answer.headers["x-crosspoint-decision"];
        if (typeof decision === "string") resolve(JSON.parse(decision) as DecisionRecord);
        else reject(new Error(`no decision in an answer ${String(answer.statusCode)}`));
      });
    });
    call.on("error", reject);
    call.end(JSON.stringify(body));
  });
}
