import { bytesOf, lastMember, membersOf, readValue } from "../body/json-spans.js";
import type { Candidate } from "../candidates.js";
import { ApiError } from "../errors.js";
import type { Metrics } from "../metrics.js";
import { callForAnswer, openedBody } from "../upstream/answer.js";
import type { Upstream } from "../upstream/pools.js";

const QUERY_TIMEOUT_MS = 5000;
/** A prefiller that was restarted has other engine ids: what was asked before is not believed for ever (D6). */
const TTL_MS = 30_000;
const MAX_ENTRIES = 1024;
const HEADER = "x-prefiller-host-port";

export interface RankEngine {
  /** As the bootstrap server names it, for `x-data-parallel-rank`. */
  readonly rank: string;
  /** JSON text, as it came. */
  readonly engineId: string;
}

export type Ranks =
  | { readonly kind: "ranks"; readonly ranks: readonly RankEngine[]; pick(): RankEngine }
  | { readonly kind: "failed"; readonly reason: string; readonly detail: string; readonly error: ApiError };

/** Which engines prefillers have, by rank: asked of their bootstrap servers and remembered for a while, the least recently used forgotten first. */
export class MooncakeRanks {
  readonly #ttlMs: number;
  readonly #now: () => number;
  readonly #random: () => number;
  readonly #known = new Map<string, { readonly ranks: readonly RankEngine[]; readonly untilMs: number }>();
  readonly #asked = new Map<string, Promise<Ranks>>();

  constructor(ttlMs = TTL_MS, now = () => performance.now(), random = Math.random) {
    this.#ttlMs = ttlMs;
    this.#now = now;
    this.#random = random;
  }

  /** Never rejects. Requests that want the same at the same time share one query, which goes on when one of them leaves (`gone`). */
  async get({ authority }: Candidate, bootstrap: Upstream, metrics: Metrics, gone: AbortSignal): Promise<Ranks> {
    const known = this.#known.get(authority);
    if (known !== undefined && known.untilMs > this.#now()) {
      this.#known.delete(authority);
      this.#known.set(authority, known);
      return this.#found(known.ranks);
    }
    let asked = this.#asked.get(authority);
    if (asked === undefined) {
      asked = this.#ask(authority, bootstrap, metrics).finally(() => this.#asked.delete(authority));
      this.#asked.set(authority, asked);
    }
    return unlessGone(asked, gone);
  }

  /** Forgets a prefiller. */
  drop({ authority }: Candidate): void {
    this.#known.delete(authority);
  }

  #found(ranks: readonly RankEngine[]): Ranks {
    return {
      kind: "ranks",
      ranks,
      // Uniform over the ranks (D5).
      pick: () => ranks[Math.floor(this.#random() * ranks.length)] ?? { rank: "0", engineId: '""' },
    };
  }

  async #ask(authority: string, upstream: Upstream, metrics: Metrics): Promise<Ranks> {
    const { outcome } = callForAnswer(
      { stage: "bootstrap", upstream, method: "GET", target: "/query", headers: [], body: null, timeoutMs: QUERY_TIMEOUT_MS, timeoutUntil: "end", resendIfStale: true },
      metrics,
    );
    const result = await outcome;
    if (result.kind === "failed") return failure(result.error.failure, result.error.detail);
    const { status } = result.answer;
    if (status < 200 || status >= 300) return failure(`status_${String(status)}`, "");
    const body = await openedBody(result.answer);
    const ranks = body === null ? [] : ranksIn(body);
    if (ranks.length === 0) return failure("no_engine_id", "");
    this.#known.delete(authority);
    this.#known.set(authority, { ranks, untilMs: this.#now() + this.#ttlMs });
    const [oldest] = this.#known.keys();
    if (this.#known.size > MAX_ENTRIES && oldest !== undefined) this.#known.delete(oldest);
    return this.#found(ranks);
  }
}

function failure(reason: string, detail: string): Ranks {
  return { kind: "failed", reason, detail, error: new ApiError(502, "prefill failed: its bootstrap server names no engine", HEADER) };
}

/** `{"0":{"engine_id":"…"},…}`: entries without an engine id that is a string are passed over. */
function ranksIn(body: Buffer): RankEngine[] {
  const root = readValue(body);
  if (root?.kind !== "object") return [];
  const ranks = new Map<string, RankEngine>();
  for (const { name, value } of membersOf(body, root)) {
    const id = lastMember(body, value, "engine_id");
    if (/^\d{1,9}$/.test(name) && id?.kind === "string") ranks.set(name, { rank: name, engineId: bytesOf(body, id).toString() });
  }
  return [...ranks.values()];
}

function unlessGone(asked: Promise<Ranks>, gone: AbortSignal): Promise<Ranks> {
  return new Promise((resolve) => {
    const left = (): void => {
      resolve(failure("aborted", "the client left"));
    };
    if (gone.aborted) left();
    gone.addEventListener("abort", left, { once: true });
    void asked.then((ranks) => {
      gone.removeEventListener("abort", left);
      resolve(ranks);
    });
  });
}
