import { randomUUID } from "node:crypto";
import { capToOneToken } from "../body/prefill-caps.js";
import { serveConcurrently } from "../stages/concurrent.js";
import type { KvConnector } from "./connector.js";
import { p2pPeer, pullMember, ROLE_KEYS } from "./kv-source.js";
import { setTransferParams } from "./transfer-params.js";

/**
 * vLLM's OffloadingConnector with its p2p tier (sidecar §4.5): both legs at the same time, their parameters keyed by who is on the other side and joined by a
 * request id that we make up. The decoder pulls from the prefiller's CPU memory, and computes the prompt itself when nothing comes. Where another pod holds more
 * of the prefix, the prefiller pulls that first.
 *
 * Blocks of an abandoned prefill. Before its answer: its call is closed, and the engine frees what it has. After it: the blocks lie in the prefiller's offloading
 * tier under the request's id until decode has pulled them. So decode is let run until it has when the client leaves; where it cannot any more, the tier's own
 * limit and age give them back.
 */
export const offloading: KvConnector = {
  name: "offloading",
  serve(exchange, job) {
    const { request, ecParams, kvSource } = job;
    const { view, shape } = request;
    const { options } = exchange.services;
    const keys = ROLE_KEYS[options.kvParamsDialect];
    return serveConcurrently(exchange, job, {
      keepsBlocks: true,
      decodesAlone: true,
      legs: (prefiller) => {
        const id = randomUUID();
        const pull = pullMember(kvSource, prefiller, options);
        const prefillBody = exchange.legBody(request, ecParams, (editor) => {
          capToOneToken(editor, view, shape, "first");
          setTransferParams(editor, view, `{"${keys.decoder}":{"kv_request_id":"${id}"}${pull === null ? "" : `,${pull}`}}`);
        });
        return Promise.resolve({
          kind: "legs",
          prefillBody,
          prefillHeaders: [],
          decode: (editor) => {
            setTransferParams(editor, view, `{"${keys.prefiller}":${p2pPeer(prefiller, id, options)}}`);
          },
        });
      },
    });
  },
};
