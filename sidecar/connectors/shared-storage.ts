import { capToOneToken, setTopLevel } from "../body/prefill-caps.js";
import type { ReadRequest } from "../exchange.js";
import { decodeLocally } from "../stages/decode.js";
import { prefill } from "../stages/prefill.js";
import type { KvConnector } from "./connector.js";

/**
 * KV lies in storage that all engines see, found by the content of the prompt (sidecar §4.2, real-engine §5): no leg carries parameters, and a prefill that
 * answers 2xx has done its work, whatever it answers. A client that sends `cache_hit_threshold` has the decode engine asked first: it answers, or says that too
 * little is cached. All later legs carry the threshold 0, so that they compute.
 *
 * Blocks of an abandoned prefill. None: nothing is pinned for anybody. A prefill that is not answered yet is ended by closing its call; what it has written
 * stays in the store for whoever comes with the same prompt.
 */
export const sharedStorage: KvConnector = {
  name: "shared-storage",
  async serve(exchange, { request, ecParams, prefillers }) {
    const { view, shape } = request;
    if (canMiss(request) && (await decodeLocally(exchange, request, ecParams, { probe: true })) !== "missed") return;

    const prefilled = await prefill(exchange, prefillers, () =>
      exchange.legBody(request, ecParams, (editor) => {
        capToOneToken(editor, view, shape);
        setTopLevel(editor, view, "cache_hit_threshold", "0");
      }),
    );
    if (prefilled.kind === "over") return;
    await decodeLocally(exchange, request, ecParams, {
      ...(prefilled.kind === "answer" ? { prefilledBy: prefilled.prefiller.authority } : {}),
      edit: (editor) => {
        setTopLevel(editor, view, "cache_hit_threshold", "0");
      },
    });
  },
};

/** The client wants the engine asked first, and the API has a word for a miss (Responses has none: those are prefilled). */
function canMiss({ view, shape }: ReadRequest): boolean {
  return shape !== "responses" && view.members.some(({ name, parent }) => name === "cache_hit_threshold" && parent === "");
}
