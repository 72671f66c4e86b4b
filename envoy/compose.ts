import type { HostPort } from "./address.js";
import { canMatch, openedControlPaths } from "./bootstrap/index.js";
import { MIN_WINDOW_BYTES } from "./bootstrap/http2.js";
import { type Endpoint, endpointId, idOfEntry, type PluginDocument, toEndpoint } from "./document.js";
import type { Inputs, Source } from "./inputs.js";
import { isObject, type Json } from "./json.js";
import { type GatewayOptions, readGatewayOptions } from "./options.js";
import type { Problem, Severity } from "./problems.js";
import type { ValidationReport, Validator, ValidatorProblem } from "./validate.js";

/** Labels that a message names. */
const LABELS_TOLD = 6;

/** What is to be published, but for its revision. */
export interface Composition {
  readonly document: Omit<PluginDocument, "revision">;
  /** Hosts of the decode cluster. */
  readonly decode: readonly HostPort[];
  readonly gateway: GatewayOptions;
}

export interface Composed {
  /** Null when there is any problem of severity `error`. */
  readonly composition: Composition | null;
  readonly problems: readonly Problem[];
}

/** The document's text, as the filter gets it. */
export function documentText(document: PluginDocument): string {
  const { revision, picker, options, endpoints } = document;
  return JSON.stringify({ revision, picker, ...(options === undefined ? {} : { options }), endpoints });
}

/** The input that a validator's path points into, and the path inside it. */
function place(inputs: Inputs, path: string): { source: Source; path: string } {
  if (/^endpoints(?:\[|$)/.test(path)) return { source: inputs.endpoints, path };
  if (inputs.options !== null && /^options(?:[.[]|$)/.test(path)) return { source: inputs.options, path };
  return { source: inputs.picker, path };
}

function toProblem(inputs: Inputs, severity: Severity, problem: ValidatorProblem): Problem {
  const { source, path } = place(inputs, problem.path);
  return { severity, file: source.file, line: source.lineOf(path.replace(/^options\.?/, "")), path, message: problem.message };
}

function indexOf(path: string): number | null {
  const match = /^endpoints\[(\d+)\]/.exec(path);
  return match === null ? null : Number(match[1]);
}

/** An entry of the file, or what stands in for it. */
interface Slot {
  readonly entry: Json;
  /** Its place in the file. */
  readonly index: number;
}

/**
 * Keeps the good entries of the endpoints file, and for a bad one what it was when it was good (scheduler §12.3 L14: better than the reference, whose reload deletes it).
 *
 * @param report of the document with the file's entries as they are
 * @param lastGood endpoints of the document that is published now
 */
function settleEndpoints(inputs: Inputs, entries: readonly Json[], report: ValidationReport, lastGood: readonly Endpoint[]): { slots: Slot[]; problems: Problem[] } {
  const accepted = new Set(report.endpoints);
  const taken = new Set(report.endpoints.map((index) => endpointId(toEndpoint(entries[index] ?? null))));
  const known = new Map(lastGood.map((endpoint) => [endpointId(endpoint), endpoint]));
  const problems: Problem[] = [];
  const slots: Slot[] = [];
  for (const [index, entry] of entries.entries()) {
    if (accepted.has(index)) {
      slots.push({ entry, index });
      continue;
    }
    const id = idOfEntry(entry);
    // Its namesake further down counts.
    if (id !== null && taken.has(id)) continue;
    const before = id === null ? undefined : known.get(id);
    const path = `endpoints[${String(index)}]`;
    const line = inputs.endpoints.lineOf(path);
    if (before === undefined || id === null) {
      problems.push({ severity: "entry", file: inputs.endpoints.file, line, path, message: `${id ?? "the endpoint"} is left out` });
      continue;
    }
    taken.add(id);
    slots.push({ entry: before as unknown as Json, index });
    problems.push({ severity: "entry", file: inputs.endpoints.file, line, path, message: `${id} keeps its last good form` });
  }
  return { slots, problems };
}

/**
 * Makes the plugin document and the decode cluster of the inputs, judged by the filter's own validator.
 *
 * @param lastGood endpoints that are published now, for entries that have become bad; empty for none
 */
export function compose(inputs: Inputs, validate: Validator, lastGood: readonly Endpoint[] = []): Composed {
  const raw = (isObject(inputs.endpoints.value) ? inputs.endpoints.value.endpoints : null) as readonly Json[];
  const options = inputs.options?.value;
  const textOf = (endpoints: readonly Json[]): string =>
    JSON.stringify({ revision: 1, picker: inputs.picker.value, ...(options === undefined ? {} : { options }), endpoints });

  const first = validate(textOf(raw));
  const rejected = new Set(raw.keys());
  for (const index of first.endpoints) rejected.delete(index);
  const problems: Problem[] = [
    ...first.errors.map((problem) => toProblem(inputs, "error", problem)),
    // With errors elsewhere no entry counts as accepted, which says nothing of the entries.
    ...first.warnings.map((problem) => {
      const index = indexOf(problem.path);
      if (first.errors.length > 0 || index === null || !rejected.has(index)) return toProblem(inputs, "warning", problem);
      // What becomes of the entry is said once for all that is wrong with it, by settleEndpoints.
      return toProblem(inputs, "entry", { path: problem.path, message: problem.message.replace(/ \(the entry is left out\)$/, "") });
    }),
  ];
  if (first.errors.length > 0) return { composition: null, problems };

  const settled = settleEndpoints(inputs, raw, first, lastGood);
  problems.push(...settled.problems);
  if (settled.slots.length === 0 && raw.length > 0) {
    problems.push({ severity: "error", file: inputs.endpoints.file, path: "endpoints", message: "no entry is usable", line: inputs.endpoints.lineOf("endpoints") });
    return { composition: null, problems };
  }
  const endpoints = settled.slots.map(({ entry }) => toEndpoint(entry));
  const report = validate(textOf(endpoints as unknown as readonly Json[]));
  if (report.errors.length > 0 || report.endpoints.length !== endpoints.length) {
    // Two passes over the same entries that differ: better refused here than by the filter.
    problems.push(...report.errors.map((problem) => toProblem(inputs, "error", problem)));
    problems.push({ severity: "error", file: inputs.endpoints.file, path: "endpoints", message: "the entries that are left do not form a valid document" });
    return { composition: null, problems };
  }
  const decode = report.decodeEndpoints.map((index) => {
    const endpoint = endpoints[index];
    if (endpoint === undefined) throw new Error(`the validator names endpoint ${String(index)} of ${String(endpoints.length)}`);
    return { host: endpoint.address, port: report.primaryPort === 0 ? endpoint.port : report.primaryPort };
  });
  const unique = [...new Map(decode.map((host) => [`${host.host} ${String(host.port)}`, host])).values()];
  const gateway = readGatewayOptions(options ?? null);
  problems.push(...gatewayWarnings(inputs, gateway));
  if (unique.length === 0) problems.push(toProblem(inputs, "warning", { path: "endpoints", message: nobodyDecodes(endpoints) }));
  return { composition: { document: { picker: inputs.picker.value, ...(options === undefined ? {} : { options }), endpoints }, decode: unique, gateway }, problems };
}

/** The usual cause is a configuration that selects by other labels than the pods have: so these are told. */
function nobodyDecodes(endpoints: readonly Endpoint[]): string {
  const labels = [...new Set(endpoints.flatMap((endpoint) => Object.entries(endpoint.labels).map(([key, value]) => `${key}=${value}`)))];
  const some = labels.slice(0, LABELS_TOLD).join(", ") + (labels.length > LABELS_TOLD ? ", ..." : "");
  const have = endpoints.length === 0 ? "" : some === "" ? " (the endpoints have no labels)" : ` (the endpoints' labels: ${some})`;
  return `none passes the filters of the decode profile: every request will be answered 503${have}`;
}

/** What is legal and may still not be what was meant. */
function gatewayWarnings(inputs: Inputs, gateway: GatewayOptions): Problem[] {
  const warnings: Problem[] = [];
  const warn = (path: string, message: string): void => {
    warnings.push(toProblem(inputs, "warning", { path, message }));
  };
  for (const [i, allowed] of gateway.allowPaths.entries()) {
    const opened = openedControlPaths(allowed);
    if (opened.length > 0) warn(`options.allowPaths[${String(i)}]`, `lets clients reach control paths of engines: ${opened.join(", ")}`);
    if (!canMatch(allowed)) warn(`options.allowPaths[${String(i)}]`, "matches nothing: Envoy resolves '%', '//', '.' and '..' in a path before it looks for it");
  }
  if (gateway.bodyLimitBytes < MIN_WINDOW_BYTES) warn("options.bodyLimitBytes", `HTTP/2 has no windows below ${String(MIN_WINDOW_BYTES)} bytes, which is the limit there`);
  return warnings;
}
