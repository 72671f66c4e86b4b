import { type MemberSpan, bytesOf } from "../body/json-spans.js";
import type { BodyView, MediaItem } from "../body/types.js";
import { parseCandidate } from "../candidates.js";
import type { EcConnector } from "../connectors/ec-connector.js";
import { ApiError } from "../errors.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { type FlatHeaders, valuesOf } from "../headers.js";
import type { SidecarOptions } from "../options.js";
import { callForAnswer, openedBody, type Answer } from "../upstream/answer.js";
import type { Leg } from "../upstream/leg.js";
import { carriedMembers, encodeBody } from "./encode-body.js";
import { errorOfLeg, goesOnLocally, relayAnswer } from "./failure.js";

/** Open calls of one request. */
const MAX_IN_FLIGHT = 8;
const HEADER = "x-encoder-hosts-ports";
const TARGET = "/v1/chat/completions";
/** What an encoder needs of the client's headers: who asks (D16), and whose trace it belongs to. */
const PASSED_HEADERS = ["authorization", "traceparent", "tracestate", "baggage"];

export type EncodeOutcome =
  | { readonly kind: "encoded"; readonly ecParams: EcParams }
  /** The client has its answer, or has left. */
  | { readonly kind: "over" };

interface Failure {
  readonly reason: string;
  readonly respond: () => void;
  /** The client's own error under either policy. */
  readonly final: boolean;
}

type ItemResult = { readonly kind: "done"; readonly body: Buffer; readonly members: readonly MemberSpan[] } | ({ readonly kind: "failed" } & Failure);

/** Items without those that are equal to an earlier one (EC-03). */
export function distinctItems(media: readonly MediaItem[]): MediaItem[] {
  const seen = new Set<bigint>();
  return media.filter(({ key }) => {
    if (key === 0n) return true;
    const isNew = !seen.has(key);
    seen.add(key);
    return isNew;
  });
}

/** What keeps a request from the encode stage: one body of a client's must not become any number of calls, nor bodies of any size. Null: nothing does. */
export function encodeProblem(view: BodyView, { maxMediaItems, bodyLimitBytes }: Pick<SidecarOptions, "maxMediaItems" | "bodyLimitBytes">): ApiError | null {
  const above = view.media[maxMediaItems];
  if (above !== undefined) {
    const member = view.members.find(({ parent, valueStart, valueEnd }) => parent === "" && valueStart <= above.start && above.end <= valueEnd);
    return new ApiError(400, `the request has more than ${String(maxMediaItems)} media items: the one at byte ${String(above.start)} is above it`, member?.name ?? null);
  }
  // Each item's leg carries these once more.
  const carried = carriedMembers({ view }).sort((a, b) => b.valueEnd - b.valueStart - (a.valueEnd - a.valueStart));
  const bytes = carried.reduce((sum, { valueStart, valueEnd }) => sum + valueEnd - valueStart, 0);
  const items = distinctItems(view.media).length;
  if (bytes * items <= bodyLimitBytes) return null;
  return new ApiError(400, `${String(bytes)} bytes would go to encoders with each of ${String(items)} media items: more than ${String(bodyLimitBytes)} bytes together`, carried[0]?.name ?? null);
}

/** Counts requests, so that each begins its encoders at another entry (`--rotate-encoders`): pickers that list the same pods in the same order would have the first do all. */
export class Turn {
  #next = 0;

  next(): number {
    return this.#next++;
  }
}

/**
 * Has every distinct media item encoded, item i by entry i mod N of the header (or from another entry on, with `--rotate-encoders`), at most eight at a time. The first failure ends the other calls and is the
 * client's answer; under the policy `local` only the failed item is left out.
 */
export async function encode(exchange: Exchange, request: ReadRequest, connector: EcConnector, entries: readonly string[]): Promise<EncodeOutcome> {
  const { metrics, options, encoderTurn } = exchange.services;
  const first = options.rotateEncoders ? encoderTurn.next() % entries.length : 0;
  const items = distinctItems(request.view.media);
  metrics.encodeItems.inc({ outcome: "merged" }, request.view.media.length - items.length);
  const headers = encodeHeaders(exchange.headers);
  const results: ItemResult[] = [];
  const open = new Set<Leg>();
  let next = 0;
  let stopped = false;

  const stop = (reason: string): void => {
    stopped = true;
    for (const leg of open) leg.abort(reason);
  };
  const onGone = (): void => {
    stop("the client left");
  };
  if (exchange.gone.aborted) onGone();
  exchange.gone.addEventListener("abort", onGone, { once: true });

  const work = async (): Promise<void> => {
    while (!stopped && next < items.length) {
      const index = next++;
      const item = items[index];
      if (item === undefined) return;
      const result = await encodeItem(exchange, request, connector, item, index, entries[(first + index) % entries.length] ?? "", headers, open);
      if (stopped) return;
      if (result.kind === "failed") {
        metrics.encodeItems.inc({ outcome: "failed" });
        exchange.log.warn({ requestId: exchange.requestId, item: index, reason: result.reason }, "encode failed");
        if (settleFailure(exchange, result)) continue;
        stop("another item failed");
        return;
      }
      metrics.encodeItems.inc({ outcome: "encoded" });
      results[index] = result;
    }
  };
  await Promise.all(Array.from({ length: Math.min(MAX_IN_FLIGHT, items.length) }, work));
  exchange.gone.removeEventListener("abort", onGone);
  return stopped ? { kind: "over" } : { kind: "encoded", ecParams: mergedParams(results) };
}

/** @returns whether to go on without the item */
function settleFailure(exchange: Exchange, { reason, respond, final }: Failure): boolean {
  if (final) {
    respond();
    return false;
  }
  return goesOnLocally(exchange, "encode", reason, respond);
}

async function encodeItem(
  exchange: Exchange,
  request: ReadRequest,
  connector: EcConnector,
  item: MediaItem,
  index: number,
  entry: string,
  headers: FlatHeaders,
  open: Set<Leg>,
): Promise<ItemResult> {
  const { options, metrics, upstreams } = exchange.services;
  const failed = (reason: string, error: ApiError): ItemResult => ({
    kind: "failed",
    reason,
    final: false,
    respond: () => {
      exchange.fail(error);
    },
  });
  const name = `encoding of media item ${String(index)}`;
  const candidate = parseCandidate(entry);
  if (candidate === null) return failed("bad_address", new ApiError(502, `${name} failed: the routing header does not name an encoder as host:port`, HEADER));
  const body = encodeBody(request, item);
  if (body === null) return failed("no_chat_form", new ApiError(502, `${name} failed: it has no form that encoders take`));

  exchange.logBody("the body of an encode leg", body);
  const { leg, outcome } = callForAnswer(
    {
      stage: "encode",
      upstream: upstreams.encoder(candidate),
      method: "POST",
      target: TARGET,
      headers: [...headers, "x-request-id", `${exchange.requestId}-enc-${String(index)}`],
      body,
      timeoutMs: options.encodeTimeoutMs,
      timeoutUntil: "end",
      resendIfStale: true,
      trace: exchange.trace,
    },
    metrics,
  );
  open.add(leg);
  const result = await outcome;
  open.delete(leg);
  if (result.kind === "failed") {
    if (result.error.failure !== "aborted") {
      exchange.log.debug({ requestId: exchange.requestId, item: index, encoder: candidate.authority, detail: result.error.detail }, "encode leg ended");
    }
    return failed(result.error.failure, errorOfLeg(name, result.error, HEADER));
  }
  const { answer } = result;
  if (answer.status < 200 || answer.status >= 300) return refusedItem(exchange, name, answer);
  const opened = await openedBody(answer);
  const reading = opened === null ? null : connector.read(opened);
  if (opened === null || reading === null || reading.kind === "unreadable") return failed("bad_answer", new ApiError(502, `${name} failed: its answer cannot be read`, HEADER));
  return { kind: "done", body: opened, members: reading.kind === "members" ? reading.members : [] };
}

/** A 4xx goes to the client as it is; any other status is a failed stage. */
function refusedItem(exchange: Exchange, name: string, answer: Answer): ItemResult {
  const final = answer.status >= 400 && answer.status < 500;
  return {
    kind: "failed",
    reason: `status_${String(answer.status)}`,
    final,
    respond: () => {
      if (final) relayAnswer(exchange, answer);
      else exchange.fail(new ApiError(502, `${name} failed with status ${String(answer.status)}`, HEADER));
    },
  };
}

function encodeHeaders(rawHeaders: FlatHeaders): string[] {
  const headers = ["content-type", "application/json"];
  for (const name of PASSED_HEADERS) for (const value of valuesOf(rawHeaders, name)) headers.push(name, value);
  return headers;
}

/** One object of all members that encoders handed over, each as the bytes that came; of equal names the later item's. Null: nothing was handed over. */
function mergedParams(results: readonly (ItemResult | undefined)[]): EcParams {
  const byName = new Map<string, Buffer>();
  for (const result of results) {
    if (result?.kind !== "done") continue;
    for (const { name, start, value } of result.members) byName.set(name, bytesOf(result.body, { kind: value.kind, start, end: value.end }));
  }
  if (byName.size === 0) return null;
  const parts: Buffer[] = [Buffer.from("{")];
  for (const member of byName.values()) {
    if (parts.length > 1) parts.push(Buffer.from(","));
    parts.push(member);
  }
  parts.push(Buffer.from("}"));
  return parts;
}
