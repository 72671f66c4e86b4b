import { type Document, isMap, isScalar, isSeq, LineCounter, type Node, parseAllDocuments, stringify, Document as YamlDocument } from "yaml";
import type { Json, JsonObject } from "./json.js";
import type { Problem } from "./problems.js";

/** One document of a YAML (or JSON) file, and where its fields stand. */
export interface YamlText {
  readonly value: Json;
  /** 1-based line of the field that {@link path} names, or of the nearest field around it that exists. */
  lineOf(path: string): number;
}

/** `plugins[2].parameters.x` → `["plugins", 2, "parameters", "x"]`. Names that hold dots or brackets cannot be told apart from paths; they end the search early. */
function steps(path: string): (string | number)[] {
  return [...path.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map((match) => (match[1] === undefined ? match[0] : Number(match[1])));
}

function lineOf(document: Document, lines: LineCounter, path: string): number {
  let node: unknown = document.contents;
  let offset = (node as Node | null)?.range?.[0] ?? document.range?.[0] ?? 0;
  for (const step of steps(path)) {
    if (isMap(node)) {
      const pair = node.items.find((item) => isScalar(item.key) && String(item.key.value) === String(step));
      if (pair === undefined) break;
      offset = (pair.key as Node).range?.[0] ?? offset;
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number") {
      node = node.items[step];
      if (node === undefined) break;
      offset = (node as Node).range?.[0] ?? offset;
    } else break;
  }
  return lines.linePos(offset).line;
}

/** What YAML can say and JSON cannot: numbers that `JSON.stringify` would quietly make null, and an alias inside what it stands for. `above`: the containers around `value`. */
function findUnsayable(value: unknown, path: string, above: readonly unknown[]): { path: string; message: string } | null {
  if (typeof value === "number" && !Number.isFinite(value)) return { path, message: "must be a finite number" };
  if (typeof value !== "object" || value === null) return null;
  if (above.includes(value)) return { path, message: "an alias stands inside what it stands for" };
  const within = [...above, value];
  for (const [name, item] of Object.entries(value)) {
    const found = findUnsayable(item, Array.isArray(value) ? `${path}[${name}]` : path === "" ? name : `${path}.${name}`, within);
    if (found !== null) return found;
  }
  return null;
}

/**
 * Parses a YAML file of one or more documents; empty documents are left out. A name that appears twice in one map is an error, as in the reference's strict decoder
 * (scheduler §1.1); merge keys (`<<`) work as they do there.
 *
 * @returns the documents, and what is wrong; with errors, no documents
 */
export function parseYaml(text: string, file: string): { documents: YamlText[]; problems: Problem[] } {
  const lines = new LineCounter();
  const parsed = parseAllDocuments(text, { lineCounter: lines, merge: true, prettyErrors: false });
  const documents: YamlText[] = [];
  const problems: Problem[] = [];
  for (const document of "empty" in parsed ? [] : parsed) {
    for (const error of document.errors) problems.push({ severity: "error", file, line: lines.linePos(error.pos[0]).line, path: "", message: error.message });
    if (document.errors.length > 0 || document.contents === null) continue;
    let value: unknown;
    try {
      value = document.toJS({ maxAliasCount: 100 });
    } catch (error) {
      problems.push({ severity: "error", file, path: "", message: error instanceof Error ? error.message : String(error) });
      continue;
    }
    if (value === null) continue;
    const unsayable = findUnsayable(value, "", []);
    const place = (path: string): number => lineOf(document, lines, path);
    if (unsayable !== null) problems.push({ severity: "error", file, line: place(unsayable.path), ...unsayable });
    // A YAML map may have keys of any type, and `toJS` may give dates: JSON text and back leaves what the filter will see.
    else documents.push({ value: JSON.parse(JSON.stringify(value)) as Json, lineOf: place });
  }
  return problems.length > 0 ? { documents: [], problems } : { documents, problems };
}

const notes = new WeakMap<object, Readonly<Record<string, string>>>();

/**
 * Attaches comments to the fields of an object, for {@link toCommentedYaml}. A comment under the name `""` stands above the object itself when it is a list's item.
 *
 * @returns the same object
 */
export function note<T extends JsonObject>(value: T, comments: Readonly<Record<string, string>>): T {
  notes.set(value, { ...notes.get(value), ...comments });
  return value;
}

function comment(text: string): string {
  return text
    .split("\n")
    .map((line) => ` ${line}`)
    .join("\n");
}

function annotate(value: Json, node: unknown): void {
  if (isSeq(node) && Array.isArray(value)) {
    for (const [i, item] of node.items.entries()) {
      const inner = (value as readonly Json[])[i];
      if (inner === undefined) continue;
      const own = typeof inner === "object" && inner !== null ? notes.get(inner)?.[""] : undefined;
      if (own !== undefined) (item as Node).commentBefore = comment(own);
      annotate(inner, item);
    }
  } else if (isMap(node) && typeof value === "object" && value !== null) {
    const comments = notes.get(value) ?? {};
    for (const pair of node.items) {
      const name = String(isScalar(pair.key) ? pair.key.value : pair.key);
      const text = comments[name];
      if (text !== undefined) (pair.key as Node).commentBefore = comment(text);
      const inner = (value as JsonObject)[name];
      if (inner !== undefined) annotate(inner, pair.value);
    }
  }
}

/**
 * Writes a value as YAML with the comments that {@link note} attached.
 *
 * @param heading comment at the top of the file
 */
export function toCommentedYaml(value: Json, heading: string): string {
  const document = new YamlDocument(value, { aliasDuplicateObjects: false });
  annotate(value, document.contents);
  document.commentBefore = comment(heading);
  return document.toString({ lineWidth: 0 });
}

export { stringify as toYaml };
