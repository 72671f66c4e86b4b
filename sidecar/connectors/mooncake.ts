import { randomUUID } from "node:crypto";
import { capToOneToken } from "../body/prefill-caps.js";
import { authorityOf } from "../candidates.js";
import { serveConcurrently } from "../stages/concurrent.js";
import { failed } from "../stages/prefill.js";
import type { KvConnector } from "./connector.js";
import type { MooncakeRanks } from "./mooncake-ranks.js";
import { setTransferParams } from "./transfer-params.js";

/**
 * vLLM's MooncakeConnector (sidecar §4.4): the prefiller's bootstrap server tells its engines by rank; one of them, drawn uniformly, prefills, and decode is told
 * which and where, both at the same time and joined by a transfer id that we make up.
 *
 * Blocks of an abandoned prefill. Before its answer: its call is closed, and the engine frees what it has. After it: they stay pinned until decode has read
 * them. So decode is let run until it has when the client leaves; where it cannot any more, they go when the prefiller gives the transfer up (`lease` of the
 * engine).
 */
export function mooncake(ranksOf: MooncakeRanks): KvConnector {
  return {
    name: "mooncake",
    serve(exchange, job) {
      const { request, ecParams } = job;
      const { view, shape } = request;
      const { options, metrics, upstreams } = exchange.services;
      return serveConcurrently(exchange, job, {
        keepsBlocks: true,
        decodesAlone: true,
        legs: async (prefiller) => {
          const bootstrap = { ...prefiller, port: options.mooncakeBootstrapPort, authority: authorityOf(prefiller.host, options.mooncakeBootstrapPort) };
          const found = await ranksOf.get(prefiller, upstreams.bootstrap(bootstrap), metrics, exchange.gone);
          if (found.kind === "failed") {
            exchange.log.warn({ requestId: exchange.requestId, bootstrap: bootstrap.authority, reason: found.reason, detail: found.detail }, "bootstrap query failed");
            return failed({
              reason: `bootstrap_${found.reason}`,
              retried: true,
              respond: () => {
                exchange.fail(found.error);
              },
            });
          }
          const { rank, engineId } = found.pick();
          const id = `xfer-${randomUUID()}`;
          const prefillBody = exchange.legBody(request, ecParams, (editor) => {
            capToOneToken(editor, view, shape, "first");
            setTransferParams(editor, view, `{"do_remote_prefill":false,"do_remote_decode":true,"transfer_id":"${id}"}`);
          });
          return {
            kind: "legs",
            prefillBody,
            prefillHeaders: ["x-data-parallel-rank", rank],
            decode: (editor) => {
              setTransferParams(
                editor,
                view,
                `{"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":"${id}","remote_bootstrap_addr":"http://${bootstrap.authority}","remote_engine_id":${engineId}}`,
              );
            },
          };
        },
        prefillFailed: (prefiller) => {
          // It may have been restarted, and its engines have other ids now.
          ranksOf.drop(prefiller);
        },
      });
    },
  };
}
