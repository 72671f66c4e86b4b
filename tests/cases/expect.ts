/**
 * Every key of `expect`: how it is written, and what it demands of what a run saw. Reading a key gives a check, so an unknown key or a malformed value is an
 * error before anything runs; a check that has nothing to look at fails.
 */
import { answerAt, answerValues, choices, headerValues, isStream, isWhole, mediaType, saysBroken, saysDone } from "./answer.js";
import type { Policy } from "./features.js";
import { compact, JsonNumber, JsonError, parseValue, type Json, type JsonObject } from "./json.js";
import { mismatch, readMatcher, type MatchContext, type Matcher } from "./matchers.js";
import { get } from "./paths.js";
import type { Decision, HeaderLine, Leg, Role, RunSeen, SendSeen, StepSeen } from "./seen.js";
import { differenceExcept, memberDifference } from "./tokens.js";

/** What is wrong with the step, one text per finding; empty when all is as expected. */
export type Check = (step: StepSeen, run: RunSeen) => string[];

/** A malformed key: `path` names it from `expect` on. */
export class ExpectError extends Error {
  constructor(path: string, message: string) {
    super(`${path}: ${message}`);
    this.name = "ExpectError";
  }
}

type Reader = (value: Json, path: string) => Check;

function asObject(value: Json, path: string): JsonObject {
  if (!(value instanceof Map)) throw new ExpectError(path, "has to be an object");
  return value;
}

function asBoolean(value: Json, path: string): boolean {
  if (typeof value !== "boolean") throw new ExpectError(path, "has to be true or false");
  return value;
}

function asTrue(value: Json, path: string): void {
  if (value !== true) throw new ExpectError(path, "has to be true");
}

function asStrings(value: Json, path: string): string[] {
  if (!Array.isArray(value) || value.length === 0) throw new ExpectError(path, "has to be a list of texts");
  return value.map((item) => {
    if (typeof item !== "string") throw new ExpectError(path, "has to be a list of texts");
    return item;
  });
}

function asNumber(value: Json, path: string): number {
  if (!(value instanceof JsonNumber) || !Number.isSafeInteger(Number(value.text))) throw new ExpectError(path, "has to be an integer");
  return Number(value.text);
}

function asMatcher(value: Json, path: string): Matcher {
  try {
    return readMatcher(value);
  } catch (error) {
    throw new ExpectError(path, error instanceof Error ? error.message : String(error));
  }
}

/** A whole number, or a matcher over one. */
function asCount(value: Json, path: string): Matcher {
  const matcher = asMatcher(value, path);
  if (matcher.kind === "max" || (matcher.kind === "not" && matcher.value instanceof JsonNumber)) return matcher;
  if (matcher.kind === "equals") asNumber(matcher.value, path);
  else throw new ExpectError(path, `a count cannot be "${matcher.kind}"`);
  return matcher;
}

/** A text, or a matcher over one. */
function asText(value: Json, path: string): Matcher {
  const matcher = asMatcher(value, path);
  if (matcher.kind === "equals" ? typeof matcher.value !== "string" : matcher.kind === "max" || matcher.kind === "same_as_prefill") {
    throw new ExpectError(path, "has to be a text, or a matcher over one");
  }
  return matcher;
}

function count(seen: number): Json {
  return new JsonNumber(seen.toString());
}

function said(path: string, wrong: string | null): string[] {
  return wrong === null ? [] : [`${path}: ${wrong}`];
}

function context(run: RunSeen): MatchContext {
  return { map: run.map };
}

// ---- filter -------------------------------------------------------------------------------------------------------------------------------------------------

/** The sends that a key of one request speaks of: with `second_post` of the first, else of all. `name` tells them apart in messages. */
function subjects(step: StepSeen, firstOnly: boolean): { send: SendSeen; name: string }[] {
  const sends = firstOnly ? step.sends.slice(0, 1) : step.sends;
  return sends.map((send, at) => ({ send, name: step.sends.length > 1 ? ` (send ${(at + 1).toString()})` : "" }));
}

/**
 * The record that decided the request; null: Envoy answered by itself, which counts as no prefill and no encode. A text says why there is neither.
 */
function decisionOf(send: SendSeen | undefined): Decision | null | string {
  if (send === undefined) return "there was no such request";
  if (send.decision === "missing") return "there is no decision record of this request";
  return send.decision;
}

function recordOf(send: SendSeen | undefined): Decision | string {
  return decisionOf(send) ?? "Envoy answered by itself, there is no decision record";
}

function stageRan(decision: Decision | null, stage: "prefill" | "encode"): boolean {
  if (decision === null) return false;
  return stage === "prefill" ? decision.prefill.endpoint !== "" : decision.encode.endpoints.length > 0;
}

/** The header that carries a chosen stage to the sidecar. */
const STAGE_HEADER = { prefill: "x-prefiller-host-port", encode: "x-encoder-hosts-ports" } as const;

/** "the stage was chosen and its header set": record and header have to say the same. */
function stageWrong(send: SendSeen | undefined, stage: "prefill" | "encode", expected: boolean): string | null {
  const decision = decisionOf(send);
  if (typeof decision === "string") return decision;
  const ran = stageRan(decision, stage);
  const head = send?.sidecarHead ?? null;
  if (head !== null) {
    const header = headerValues(head, STAGE_HEADER[stage]).length > 0;
    if (header !== ran) return `the record says ${String(ran)}, ${STAGE_HEADER[stage]} is ${header ? "set" : "not set"}`;
  } else if (ran) {
    return "the record says true, no request came to the sidecar";
  }
  return ran === expected ? null : `expected ${String(expected)}, saw ${String(ran)}${decision === null ? "" : ` (${decision[stage].reason})`}`;
}

/** Sequential sends of one body differ in what the first one taught the prefix index: prefill and the words that follow from it speak of the first. */
type Scope = "first" | "each";

/** Sends to which the key applies. */
function scoped(step: StepSeen, scope: Scope, firstOnly: boolean): { send: SendSeen; name: string }[] {
  return subjects(step, firstOnly || (scope === "first" && !step.atOnce));
}

/** Every request of the run in order, each send one. */
function history(run: RunSeen): SendSeen[] {
  return run.steps.flatMap((step) => step.sends);
}

function readPrefix(value: Json, path: string): Check {
  const wanted = [...asObject(value, path)].map(([name, word]) => {
    if (!/^[1-9][0-9]*$/.test(name)) throw new ExpectError(`${path}.${name}`, "has to be the number of a request, from 1 on");
    if (word !== "hit" && word !== "miss") throw new ExpectError(`${path}.${name}`, 'has to be "hit" or "miss"');
    return { name, at: Number(name) - 1, word };
  });
  return (_step, run) =>
    wanted.flatMap(({ name, at, word }) => {
      const here = `${path}.${name}`;
      const all = history(run);
      const decision = recordOf(all[at]);
      if (typeof decision === "string") return [`${here}: ${decision}`];
      const reason = decision.prefill.reason;
      if (word === "miss") return reason === "run_uncached" ? [] : [`${here}: expected a miss (run_uncached), saw ${reason}`];
      if (reason !== "skip_short_suffix" && reason !== "skip_cached") return [`${here}: expected a hit, saw ${reason}`];
      const earlier = all.slice(0, at).map(recordOf);
      const known = earlier.some((other) => typeof other !== "string" && other.decode.endpoint === decision.decode.endpoint);
      return known ? [] : [`${here}: a hit on ${decision.decode.endpoint}, which no earlier request was sent to`];
    });
}

function readSecondPost(value: Json, path: string): Check {
  const demands = [...asObject(value, path)].map(([name, member]) => {
    if (name !== "same_decode" && name !== "prefill") throw new ExpectError(`${path}.${name}`, "unknown key");
    return { name, expected: asBoolean(member, `${path}.${name}`) };
  });
  return (step) =>
    demands.flatMap(({ name, expected }) => {
      const here = `${path}.${name}`;
      if (step.sends.length !== 2 || step.atOnce) return [`${here}: there is a second post only where the request is sent twice`];
      if (name === "prefill") return said(here, stageWrong(step.sends[1], "prefill", expected));
      return said(here, sameDecode(step.sends[1], step.sends[0], expected));
    });
}

function sameDecode(send: SendSeen | undefined, other: SendSeen | undefined, expected: boolean): string | null {
  const one = recordOf(send);
  const two = recordOf(other);
  if (typeof one === "string") return one;
  if (typeof two === "string") return `the first request: ${two}`;
  if (one.decode.endpoint === "" || two.decode.endpoint === "") return "no decode endpoint was picked";
  const same = one.decode.endpoint === two.decode.endpoint;
  return same === expected ? null : `expected ${String(expected)}, saw ${one.decode.endpoint} and, for the first request, ${two.decode.endpoint}`;
}

function headerCheck(value: Json, path: string, headersOf: (send: SendSeen) => HeaderLine[] | null, none: string): (send: SendSeen, run: RunSeen) => string[] {
  const wanted = [...asObject(value, path)].map(([name, member]) => ({ name, matcher: asText(member, `${path}.${name}`) }));
  return (send, run) => {
    const headers = headersOf(send);
    if (headers === null) return [`${path}: ${none}`];
    return wanted.flatMap(({ name, matcher }) => {
      const values = headerValues(headers, name);
      const cut = (text: string): string => (name.toLowerCase() === "content-type" ? mediaType(text) : text);
      const seen = values.length === 0 ? undefined : cut(values.join(", "));
      const wantedHere: Matcher = (matcher.kind === "equals" || matcher.kind === "not") && typeof matcher.value === "string" ? { ...matcher, value: cut(matcher.value) } : matcher;
      // "not" has to hold for each of several lines.
      const single = matcher.kind === "not" ? values.flatMap((line) => said(`${path}.${name}`, mismatch(wantedHere, cut(line), context(run)))) : [];
      return single.length > 0 ? single.slice(0, 1) : said(`${path}.${name}`, mismatch(wantedHere, seen, context(run)));
    });
  };
}

function filterKeys(firstOnly: boolean): Record<string, Reader> {
  const each =
    (scope: Scope, look: (send: SendSeen, run: RunSeen) => string[]): Check =>
    (step, run) =>
      scoped(step, scope, firstOnly).flatMap(({ send, name }) => look(send, run).map((wrong) => wrong + name));
  const stage = (which: "prefill" | "encode", scope: Scope): Reader => {
    return (value, path) => {
      const expected = asBoolean(value, path);
      return each(scope, (send) => said(path, stageWrong(send, which, expected)));
    };
  };
  const recordedCheck =
    (path: string, scope: Scope, matcher: Matcher, look: (decision: Decision) => Json): Check =>
      each(scope, (send, run) => {
        const decision = recordOf(send);
        return said(path, typeof decision === "string" ? decision : mismatch(matcher, look(decision), context(run)));
      });
  return {
    prefill: stage("prefill", "first"),
    encode: stage("encode", "each"),
    reasons: (value, path) => {
      const checks = [...asObject(value, path)].map(([name, word]) => {
        if (name !== "prefill" && name !== "encode" && name !== "decode") throw new ExpectError(`${path}.${name}`, "unknown stage");
        return recordedCheck(`${path}.${name}`, name === "prefill" ? "first" : "each", asText(word, `${path}.${name}`), (decision) => decision[name].reason);
      });
      return (step, run) => checks.flatMap((check) => check(step, run));
    },
    mm_items: (value, path) => recordedCheck(path, "each", asCount(value, path), (decision) => count(decision.mmItems)),
    model: (value, path) => recordedCheck(path, "each", asText(value, path), (decision) => decision.model),
    decisions: (value, path) => {
      const matcher = asCount(value, path);
      return (step, run) => {
        const seen = firstOnly ? (step.sends[0]?.decisions ?? null) : step.decisions;
        if (seen === null) return [`${path}: the counter of decisions could not be read`];
        const records = subjects(step, firstOnly).map(({ send }) => decisionOf(send));
        const told = records.reduce<number>((sum, record) => sum + (typeof record === "object" && record !== null ? record.decisions : 0), 0);
        if (told !== seen) return [`${path}: the counter grew by ${seen.toString()}, the records tell of ${told.toString()}`];
        return said(path, mismatch(matcher, count(seen), context(run)));
      };
    },
    same_decode: (value, path) => {
      const expected = asBoolean(value, path);
      return (step, run) => subjects(step, firstOnly).flatMap(({ send, name }) => said(path + name, sameDecode(send, run.steps[0]?.sends[0], expected)));
    },
    second_post: readSecondPost,
    prefix: readPrefix,
    headers: (value, path) => {
      const look = headerCheck(value, path, (send) => send.sidecarHead, "no request came to a sidecar from Envoy");
      return each("first", look);
    },
    status_from: (value, path) => {
      if (value !== "engine") throw new ExpectError(path, 'has to be "engine"');
      return (step) => {
        const engines = new Set(step.legs.filter((leg) => leg.status > 0).map((leg) => leg.status));
        return subjects(step, firstOnly).flatMap(({ send, name }) =>
          send.status !== null && engines.has(send.status) ? [] : [`${path}: the client got ${String(send.status)}, engines sent ${engines.size === 0 ? "nothing" : [...engines].join(", ")}${name}`],
        );
      };
    },
    trap: (value, path) => {
      const expected = asBoolean(value, path);
      return (step, run) => {
        if (step.traps === null || run.lateTraps === null) return [`${path}: Envoy shows no wasm failure counters`];
        const traps = step.traps + run.lateTraps;
        return traps > 0 === expected ? [] : [`${path}: Envoy's wasm failure and restart counters grew by ${traps.toString()}`];
      };
    },
  };
}

// ---- sidecar ------------------------------------------------------------------------------------------------------------------------------------------------

function calls(step: StepSeen, role: Role): Leg[] {
  return step.legs.filter((leg) => leg.role === role && leg.connectionFailure === null);
}

/** A leg's text as its engine reads it; a UTF-8 byte order mark is no part of it. */
function legText(leg: Leg): Buffer {
  return leg.body.subarray(0, 3).equals(Buffer.from([0xef, 0xbb, 0xbf])) ? leg.body.subarray(3) : leg.body;
}

/** The parsed body of the leg's last call; a text says why there is none. */
function lastBody(step: StepSeen, role: Role): { value: Json } | string {
  const leg = calls(step, role).at(-1);
  if (leg === undefined) return `the ${role} leg was not called`;
  try {
    return { value: parseValue(legText(leg)) };
  } catch (error) {
    if (error instanceof JsonError) return `the ${role} leg's body is no JSON (${error.message})`;
    throw error;
  }
}

function legMembers(role: Role): Reader {
  return (value, path) => {
    const wanted = [...asObject(value, path)].map(([member, expected]) => ({ member, matcher: asMatcher(expected, `${path}.${member}`) }));
    if (role !== "decode" && wanted.some(({ matcher }) => matcher.kind === "same_as_prefill")) throw new ExpectError(path, "same_as_prefill compares the decode leg");
    return (step, run) => {
      const body = lastBody(step, role);
      if (typeof body === "string") return [`${path}: ${body}`];
      return wanted.flatMap(({ member, matcher }) => {
        const prefill = (): Json | undefined => {
          const other = lastBody(step, "prefill");
          return typeof other === "string" ? undefined : get(other.value, member);
        };
        return said(`${path}.${member}`, mismatch(matcher, get(body.value, member), { ...context(run), prefill }));
      });
    };
  };
}

/** The client's text against every call of the decode leg, and of the prefill leg if it was called. */
function bytesCheck(path: string, compare: (client: Buffer, leg: Buffer) => string | null): Check {
  return (step) => {
    const client = step.clientBody;
    if (client === null) return [`${path}: the client sent no body`];
    if (calls(step, "decode").length === 0) return [`${path}: the decode leg was not called`];
    return [...calls(step, "prefill"), ...calls(step, "decode")].flatMap((leg) => {
      try {
        return said(`${path} (${leg.role} leg)`, compare(client, legText(leg)));
      } catch (error) {
        if (error instanceof JsonError) return [`${path} (${leg.role} leg): ${error.message}`];
        throw error;
      }
    });
  };
}

function counted(look: (step: StepSeen) => number | string): Reader {
  return (value, path) => {
    const matcher = asCount(value, path);
    return (step, run) => {
      const seen = look(step);
      return said(path, typeof seen === "string" ? seen : mismatch(matcher, count(seen), context(run)));
    };
  };
}

/**
 * Calls of a role. A connection that a script resets is a call where the engine has read the request before, and none where it has not; which of the two is
 * the simulation's choice, so either count is right.
 */
function countedCalls(role: Role): Reader {
  return (value, path) => {
    const matcher = asCount(value, path);
    return (step, run) => {
      const answered = calls(step, role).length;
      const read = step.legs.filter((leg) => leg.role === role && leg.connectionFailure !== "refused").length;
      const wrong = mismatch(matcher, count(answered), context(run));
      return said(path, wrong === null || read === answered ? wrong : mismatch(matcher, count(read), context(run)));
    };
  };
}

/** The most legs of the role that were open at one moment, over all its engines. */
export function maxInFlight(legs: readonly Leg[], role: Role): number {
  const changes = legs
    .filter((leg) => leg.role === role && leg.connectionFailure === null)
    .flatMap((leg) => [
      { atMs: leg.startedAtMs, by: 1 },
      { atMs: leg.endedAtMs ?? Number.POSITIVE_INFINITY, by: -1 },
    ])
    // At one instant ends count first.
    .sort((a, b) => a.atMs - b.atMs || a.by - b.by);
  let open = 0;
  let most = 0;
  for (const change of changes) {
    open += change.by;
    most = Math.max(most, open);
  }
  return most;
}

/** How long after its cause an abort may be seen (README of the cases). */
const ABORT_WITHIN_MS = 1000;

/**
 * What an abort of a leg followed from: the client that left, else the first leg that failed, else the client's answer (a deadline).
 */
function abortCause(step: StepSeen): number | null {
  const left = step.sends.map((send) => send.leftAtMs).filter((at) => at !== null);
  if (left.length > 0) return Math.min(...left);
  const failed = step.legs.filter((leg) => leg.abortedAtMs === null && leg.endedAtMs !== null && (leg.status === 0 || leg.status >= 400)).map((leg) => leg.endedAtMs ?? 0);
  if (failed.length > 0) return Math.min(...failed);
  const ends = step.sends.map((send) => send.endedAtMs);
  return ends.length > 0 ? Math.max(...ends) : null;
}

function aborted(role: Role): Reader {
  return (value, path) => {
    asTrue(value, path);
    return (step) => {
      const at = calls(step, role)
        .map((leg) => leg.abortedAtMs)
        .filter((time) => time !== null);
      if (at.length === 0) return [`${path}: no ${role} engine saw its socket closed before it had answered`];
      const cause = abortCause(step);
      if (cause === null) return [`${path}: nothing that the abort could have followed from`];
      const late = Math.max(...at) - cause;
      return late <= ABORT_WITHIN_MS ? [] : [`${path}: the socket was closed ${Math.round(late).toString()} ms after its cause`];
    };
  };
}

const SIDECAR_KEYS: Record<string, Reader> = {
  encode: legMembers("encode"),
  prefill: legMembers("prefill"),
  decode: legMembers("decode"),
  untouched: (value, path) => {
    const names = asStrings(value, path);
    return bytesCheck(path, (client, leg) => names.map((name) => memberDifference(client, leg, name)).find((wrong) => wrong !== null) ?? null);
  },
  bytes_identical_except: (value, path) => {
    const names = Array.isArray(value) && value.length === 0 ? [] : asStrings(value, path);
    return bytesCheck(path, (client, leg) => differenceExcept(client, leg, names));
  },
  paths: (value, path) => {
    const wanted = [...asObject(value, path)].map(([role, text]) => {
      if (role !== "encode" && role !== "prefill" && role !== "decode") throw new ExpectError(`${path}.${role}`, "unknown leg");
      return { role, matcher: asText(text, `${path}.${role}`) };
    });
    return (step, run) =>
      wanted.flatMap(({ role, matcher }) => {
        const leg = calls(step, role as Role).at(-1);
        return said(`${path}.${role}`, leg === undefined ? `the ${role} leg was not called` : mismatch(matcher, leg.path, context(run)));
      });
  },
  header_absent: (value, path) => {
    const names = asStrings(value, path);
    return (step) => names.filter((name) => step.legs.some((leg) => headerValues(leg.headers, name).length > 0)).map((name) => `${path}: an engine saw ${name}`);
  },
  values_per_leg: (value, path) => {
    const wanted = [...asObject(value, path)].map(([name, times]) => ({ name, times: asNumber(times, `${path}.${name}`) }));
    return (step) => {
      const legs = step.legs.filter((leg) => leg.connectionFailure === null);
      if (legs.length === 0) return [`${path}: no leg was called`];
      return wanted.flatMap(({ name, times }) =>
        legs
          .map((leg) => ({ leg, seen: headerValues(leg.headers, name).reduce((sum, line) => sum + line.split(",").length, 0) }))
          .filter(({ seen }) => seen !== times)
          .map(({ leg, seen }) => `${path}.${name}: expected ${times.toString()} on the ${leg.role} leg, saw ${seen.toString()}`),
      );
    };
  },
  distinct: (value, path) => {
    const paths = asStrings(value, path);
    return (step) => {
      const legs = calls(step, "decode");
      if (legs.length !== step.sends.length || legs.length < 2) {
        return [`${path}: ${legs.length.toString()} decode legs for ${step.sends.length.toString()} requests, there has to be one each of at least two`];
      }
      return paths.flatMap((member) => {
        const values = legs.map((leg) => {
          try {
            return get(parseValue(legText(leg)), member);
          } catch (error) {
            if (error instanceof JsonError) return undefined;
            throw error;
          }
        });
        const texts = values.map((seen) => (seen === undefined || seen === null ? null : compact(seen)));
        if (texts.includes(null)) return [`${path}: a decode leg has no ${member}`];
        return new Set(texts).size === texts.length ? [] : [`${path}: two decode legs have the same ${member}`];
      });
    };
  },
  encoder_requests: countedCalls("encode"),
  prefill_calls: countedCalls("prefill"),
  decode_calls: countedCalls("decode"),
  prefill_attempts: counted((step) => step.legs.filter((leg) => leg.role === "prefill").length),
  encoders_used: counted((step) => new Set(calls(step, "encode").map((leg) => leg.engine)).size),
  max_in_flight: counted((step) => maxInFlight(step.legs, "encode")),
  held_transfers: counted((step) => step.heldTransfers ?? "the prefill engines' state could not be read"),
  unlisted_connections: counted((step) => step.unlistedConnections),
  handoff_invalid: counted((step) => step.handoffInvalid ?? "the sidecar shows no such counter"),
  prefill_aborted: aborted("prefill"),
  encode_aborted: aborted("encode"),
  ready: (value, path) => {
    const expected = asBoolean(value, path);
    return (step) => {
      if (step.readyStatus === null) return [`${path}: /ready did not answer`];
      return (step.readyStatus === 200) === expected ? [] : [`${path}: /ready answered ${step.readyStatus.toString()}`];
    };
  },
  alive: (value, path) => {
    asTrue(value, path);
    return (_step, run) => {
      if (run.alive.length === 0) return [`${path}: no sidecar was asked`];
      return run.alive.flatMap(({ sidecar, sameProcess, status }) => {
        if (!sameProcess) return [`${path}: ${sidecar}'s process has ended`];
        return status === 200 ? [] : [`${path}: ${sidecar} answered case 01's body with ${String(status)}`];
      });
    };
  },
};

// ---- client -------------------------------------------------------------------------------------------------------------------------------------------------

function answered(path: string, look: (send: SendSeen, run: RunSeen) => string[]): Check {
  return (step, run) => (step.sends.length === 0 ? [`${path}: nothing was sent`] : subjects(step, false).flatMap(({ send, name }) => look(send, run).map((wrong) => wrong + name)));
}

/** A short piece of the answer, so that a wrong status can be understood. */
function excerpt(send: SendSeen): string {
  const text = send.body.toString("utf8", 0, 200).replace(/\s+/g, " ").trim();
  return text === "" ? "" : ` (${text})`;
}

const CLIENT_KEYS: Record<string, Reader> = {
  status: (value, path) => {
    const expected = asNumber(value, path);
    return answered(path, (send) => (send.status === expected ? [] : [`${path}: expected ${expected.toString()}, saw ${String(send.status)}${excerpt(send)}`]));
  },
  status_class: (value, path) => {
    const expected = asNumber(value, path);
    return answered(path, (send) => (send.status !== null && Math.floor(send.status / 100) === expected ? [] : [`${path}: expected ${expected.toString()}xx, saw ${String(send.status)}${excerpt(send)}`]));
  },
  status_in: (value, path) => {
    if (!Array.isArray(value) || value.length === 0) throw new ExpectError(path, "has to be a list of statuses");
    const allowed = value.map((item) => asNumber(item, path));
    return answered(path, (send) => (send.status !== null && allowed.includes(send.status) ? [] : [`${path}: expected one of ${allowed.join(", ")}, saw ${String(send.status)}${excerpt(send)}`]));
  },
  headers: (value, path) => answered(path, headerCheck(value, path, (send) => (send.status === null ? null : send.headers), "no answer came")),
  json: (value, path) => {
    const wanted = [...asObject(value, path)].map(([member, expected]) => {
      const matcher = asMatcher(expected, `${path}.${member}`);
      if (matcher.kind === "same_as_prefill") throw new ExpectError(`${path}.${member}`, "same_as_prefill compares the decode leg");
      return { member, matcher };
    });
    return answered(path, (send, run) => {
      if (send.status === null) return [`${path}: no answer came`];
      if (answerValues(send).length === 0) return [`${path}: the answer holds no JSON${excerpt(send)}`];
      return wanted.flatMap(({ member, matcher }) => said(`${path}.${member}`, mismatch(matcher, answerAt(send, member), context(run))));
    });
  },
  choices: (value, path) => {
    const matcher = asCount(value, path);
    return answered(path, (send, run) => said(path, mismatch(matcher, count(choices(send)), context(run))));
  },
  done: (value, path) => {
    const expected = asBoolean(value, path);
    return answered(path, (send) => {
      const done = saysDone(send) && send.end === "clean";
      if (done !== expected) return [`${path}: expected ${String(expected)}, saw ${String(done)}${excerpt(send)}`];
      // A stream that ends cleanly without [DONE] hides that it broke: its reader takes the text for the whole.
      if (!expected && isStream(send) && send.status === 200 && send.end === "clean" && !saysBroken(send)) return [`${path}: the stream ended as if it were whole`];
      return [];
    });
  },
  failures: (value, path) => {
    const matcher = asCount(value, path);
    return (step, run) => (step.sends.length === 0 ? [`${path}: nothing was sent`] : said(path, mismatch(matcher, count(step.sends.filter((send) => !isWhole(send)).length), context(run))));
  },
  lacks: (value, path) => {
    const texts = asStrings(value, path);
    return answered(path, (send, run) => {
      if (send.status === null) return [`${path}: no answer came`];
      const whole = [...send.headers.map(([name, line]) => `${name}: ${line}`), send.body.toString("utf8")].join("\n");
      return texts.filter((text) => whole.includes(text) || whole.includes(run.map(text))).map((text) => `${path}: the answer holds ${JSON.stringify(text)}`);
    });
  },
};

// ---- reading ------------------------------------------------------------------------------------------------------------------------------------------------

/** What one request, or one step, has to show. */
export interface Demands {
  /** Asked only of requests that went through Envoy. */
  filter: Check[];
  /** Asked always, or only in the runs with that policy. */
  always: Check[];
  byPolicy: Record<Policy, Check[]>;
  /** A check needs this to be looked at. */
  asks: { ready: boolean; alive: boolean; trap: boolean; handoffInvalid: boolean };
}

export interface Expectation {
  first: Demands;
  /** The n-th step's own demands; null: the first request's hold. */
  steps: (Demands | null)[];
}

/** The keys there are, for the tests that show that each can fail. */
export const EXPECT_KEYS: Readonly<Record<"filter" | "sidecar" | "client", readonly string[]>> = {
  filter: Object.keys(filterKeys(false)),
  sidecar: Object.keys(SIDECAR_KEYS),
  client: Object.keys(CLIENT_KEYS),
};

function readSection(value: Json, path: string, keys: Record<string, Reader>, asked: Set<string>): Check[] {
  return [...asObject(value, path)].map(([name, member]) => {
    const reader = keys[name];
    if (reader === undefined) throw new ExpectError(`${path}.${name}`, "unknown key");
    asked.add(name);
    return reader(member, `${path}.${name}`);
  });
}

function readDemands(value: JsonObject, path: string, policies: readonly Policy[]): Demands {
  const demands: Demands = {
    filter: [],
    always: [],
    byPolicy: { fail: [], local: [] },
    asks: { ready: false, alive: false, trap: false, handoffInvalid: false },
  };
  const asked = new Set<string>();
  for (const [name, member] of value) {
    const here = path === "" ? name : `${path}.${name}`;
    if (name === "filter") {
      const filter = asObject(member, here);
      demands.filter = readSection(filter, here, filterKeys(filter.has("second_post")), asked);
    } else if (name === "sidecar" || name === "client") {
      const keys = name === "sidecar" ? SIDECAR_KEYS : CLIENT_KEYS;
      const rest = new Map(asObject(member, here));
      for (const policy of ["fail", "local"] as const) {
        const own = rest.get(policy);
        if (own === undefined) continue;
        rest.delete(policy);
        if (!policies.includes(policy)) throw new ExpectError(`${here}.${policy}`, "no run of the case has that policy");
        demands.byPolicy[policy].push(...readSection(own, `${here}.${policy}`, keys, asked));
      }
      demands.always.push(...readSection(rest, here, keys, asked));
    } else {
      throw new ExpectError(here, "unknown key");
    }
  }
  demands.asks = {
    ready: asked.has("ready"),
    alive: asked.has("alive"),
    trap: asked.has("trap"),
    handoffInvalid: asked.has("handoff_invalid"),
  };
  return demands;
}

/**
 * Reads an `expect` block.
 *
 * @param steps how many steps `given.then` has
 * @param policies the policies of the case's runs
 * @throws ExpectError for an unknown key, matcher or malformed value
 */
export function readExpect(value: Json, steps: number, policies: readonly Policy[]): Expectation {
  const all = asObject(value, "expect");
  const own = new Map(all);
  own.delete("then");
  const first = readDemands(own, "expect", policies);
  const then = all.get("then") ?? [];
  if (!Array.isArray(then)) throw new ExpectError("expect.then", "has to be a list");
  if (then.length > steps) throw new ExpectError("expect.then", `has ${then.length.toString()} entries, given.then has ${steps.toString()} steps`);
  return {
    first,
    steps: Array.from({ length: steps }, (_none, at) => {
      const entry = then[at];
      if (entry === undefined) return null;
      const path = `expect.then.${at.toString()}`;
      return readDemands(asObject(entry, path), path, policies);
    }),
  };
}

/** The demands on the n-th request of the case: 0 is the first, then the steps. */
export function demandsOn(expectation: Expectation, at: number): Demands {
  return at === 0 ? expectation.first : (expectation.steps[at - 1] ?? expectation.first);
}

/** Everything that is wrong with a run; empty when it is as expected. A process that died before the end is always wrong. */
export function judge(expectation: Expectation, run: RunSeen): string[] {
  const wrong = run.dead.map((name) => `${name} ended during the run`);
  for (const [at, step] of run.steps.entries()) {
    const demands = demandsOn(expectation, at);
    // A request straight to the sidecar has no decision to look at.
    const checks = [...(step.sends.every((send) => send.via === "envoy") ? demands.filter : []), ...demands.always, ...demands.byPolicy[run.policy]];
    const found = checks.flatMap((check) => check(step, run));
    wrong.push(...found.map((text) => (at === 0 || text.startsWith("expect.then") ? text : `step ${at.toString()}: ${text}`)));
  }
  return wrong;
}
