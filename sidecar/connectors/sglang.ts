import { randomBytes } from "node:crypto";
import type { BodyEditor } from "../body/edits.js";
import { removeTopLevel } from "../body/prefill-caps.js";
import type { BodyView } from "../body/types.js";
import { serveConcurrently } from "../stages/concurrent.js";
import type { KvConnector } from "./connector.js";

/**
 * SGLang's disaggregation (sidecar §4.3): both engines get the client's own body at the same time, with where they meet (the prefiller's bootstrap server) and a
 * room that nobody else has. Limits and `stream` are the client's on both legs: a prefill engine makes one token whatever they say.
 *
 * A decode engine refuses requests without a room, so it can do nothing alone: a failed prefill is the client's answer under either policy.
 *
 * Blocks of an abandoned prefill. The prefill call is answered when decode has read its KV; until then closing it has the engine drop the room and free the
 * blocks at once, whoever left. So a client that leaves ends both calls, and a decode that fails ends the prefill.
 */
export const sglang: KvConnector = {
  name: "sglang",
  serve(exchange, job) {
    const { request, ecParams } = job;
    const { sglangBootstrapPort } = exchange.services.options;
    return serveConcurrently(exchange, job, {
      keepsBlocks: false,
      decodesAlone: false,
      legs: ({ host }) => {
        const meet = meeting(request.view, host, sglangBootstrapPort, newRoom());
        return Promise.resolve({ kind: "legs", prefillBody: exchange.legBody(request, ecParams, meet), prefillHeaders: [], decode: meet });
      },
    });
  },
};

/** A room for one request: 1 … 2^63-1, random, since several sidecars share a prefiller (SG-03). As a number's text: a double cannot hold it. */
export function newRoom(): string {
  const room = randomBytes(8).readBigUInt64BE() & 0x7fff_ffff_ffff_ffffn;
  return (room === 0n ? 1n : room).toString();
}

/** @param host of the prefiller, without brackets */
function meeting(view: BodyView, host: string, port: number, room: string): (editor: BodyEditor) => void {
  return (editor) => {
    // A trusted client's own.
    removeTopLevel(editor, view, "bootstrap");
    editor.insert("bootstrap_host", JSON.stringify(host));
    editor.insert("bootstrap_port", String(port));
    editor.insert("bootstrap_room", room);
  };
}
