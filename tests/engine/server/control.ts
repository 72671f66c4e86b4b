/** `/_sim/*`: what tests ask of an engine, on the service port and on the control port. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { Incarnation } from "../incarnation.js";
import { parseJsonBytes } from "../json.js";
import { recordToJson } from "../record.js";
import { parseStageScripts, ScriptError, STAGES } from "../script.js";
import type { EngineRecord, EngineState, Script, Stage } from "../types.js";
import { answerSideChannel } from "./side-channel.js";

/** What the control paths do to an engine. */
export interface Controlled {
  readonly dead: string | null;
  readonly life: Incarnation;
  records(): EngineRecord[];
  clearRecords(): void;
  state(): EngineState;
  reset(): Promise<void>;
  setScript(script: Script | null, stage?: Stage): void;
}

function send(response: ServerResponse, status: number, json: unknown): void {
  const body = Buffer.from(JSON.stringify(json));
  response.writeHead(status, { "content-type": "application/json", "content-length": String(body.length) });
  response.end(body);
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

function putScript(engine: Controlled, body: Buffer): void {
  const parsed = parseStageScripts(JSON.parse(body.toString("utf8")));
  if (Array.isArray(parsed) || !STAGES.some((stage) => Object.hasOwn(parsed, stage))) {
    engine.setScript(parsed as Script);
    return;
  }
  for (const stage of STAGES) {
    const script = (parsed as Partial<Record<Stage, Script>>)[stage];
    if (script !== undefined) engine.setScript(script, stage);
  }
}

export async function serveControl(engine: Controlled, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? "/", "http://engine");
  const body = await readAll(request);
  const call = `${request.method ?? ""} ${url.pathname}`;
  switch (call) {
    case "GET /_sim/requests": {
      const since = Number(url.searchParams.get("since") ?? 0);
      const withBody = url.searchParams.get("bodies") !== "false";
      send(response, 200, engine.records().filter((record) => record.seq > since).map((record) => recordToJson(record, withBody)));
      return;
    }
    case "DELETE /_sim/requests":
      engine.clearRecords();
      send(response, 200, {});
      return;
    case "GET /_sim/state":
      send(response, 200, engine.state());
      return;
    case "POST /_sim/reset":
      await engine.reset();
      send(response, 200, engine.state());
      return;
    case "PUT /_sim/script":
      try {
        putScript(engine, body);
      } catch (error) {
        if (!(error instanceof ScriptError) && !(error instanceof SyntaxError)) throw error;
        send(response, 400, { error: { message: error.message, type: "BadRequestError", param: "script", code: 400 } });
        return;
      }
      send(response, 200, {});
      return;
    case "DELETE /_sim/script":
      engine.setScript(null);
      send(response, 200, {});
      return;
    default:
      break;
  }
  // The side channel of a dead process is gone with it.
  if (engine.dead !== null) {
    request.socket.destroy();
    return;
  }
  const answer = request.method === "POST" ? answerSideChannel(url.pathname, body.length === 0 ? null : parseJsonBytes(body), engine.life) : null;
  if (answer === null) send(response, 404, { error: { message: `unknown path ${call}`, type: "NotFoundError", param: null, code: 404 } });
  else send(response, answer.status, answer.json);
}
