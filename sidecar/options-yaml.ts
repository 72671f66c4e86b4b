import { parseDocument } from "yaml";
import { z } from "zod";
import { formatDuration, parseDurationMs } from "./duration.js";
import { type Definition, DEFINITIONS, type Layer, type OptionName, OptionsError } from "./options.js";

const YAML_KINDS = {
  string: z.string(),
  int: z.int(),
  portText: z.int(),
  bool: z.boolean(),
  duration: z.string(),
  list: z.array(z.union([z.string(), z.int().transform(String)])),
} as const;

const YAML_SCHEMA = z.record(z.string(), z.unknown());

/** Reads the YAML (or JSON) settings: keys are the flags' names in any case; an unknown or repeated key is fatal (CFG-17). */
export function readYaml(text: string, source: string, warnings: string[]): Layer {
  const document = parseDocument(text, { uniqueKeys: true, strict: true });
  const problem = document.errors[0];
  if (problem !== undefined) throw new OptionsError(`${source}: ${firstLine(problem.message)}`);
  const content: unknown = document.toJS();
  if (content === null || content === undefined) return {};
  const parsed = YAML_SCHEMA.safeParse(content);
  if (!parsed.success || Array.isArray(content)) throw new OptionsError(`${source}: a mapping of settings is expected`);
  const byName = new Map<string, Definition & { name: OptionName }>(DEFINITIONS.map((definition) => [definition.name, definition]));
  const layer: Layer = {};
  for (const [key, raw] of Object.entries(parsed.data)) {
    const definition = byName.get(key.toLowerCase());
    if (definition === undefined) throw new OptionsError(`${source}: unknown key "${key}"`);
    if (layer[definition.name] !== undefined) throw new OptionsError(`${source}: key "${key}" is given twice`);
    if (raw === null) continue;
    const value = YAML_KINDS[definition.kind].safeParse(raw);
    if (!value.success) throw new OptionsError(`${source}: ${definition.name}: ${firstLine(value.error.issues[0]?.message ?? "wrong type")}`);
    if (definition.kind === "duration") {
      const ms = parseDurationMs(String(value.data));
      // CFG-18: the reference goes on with the default; an unreadable duration is no reason to stop a pod.
      if (ms === null) warnings.push(`${source}: ${definition.name}: "${String(value.data)}" is not a duration, ${formatDuration(Number(definition.default))} is kept`);
      else layer[definition.name] = ms;
      continue;
    }
    // Zero and empty values count as absent, but for booleans and the number of retries (sidecar §1.3).
    const empty = value.data === 0 || value.data === "" || (Array.isArray(value.data) && value.data.length === 0);
    if (empty && definition.yamlZeroCounts !== true) continue;
    layer[definition.name] = definition.kind === "portText" ? String(value.data) : value.data;
  }
  return layer;
}

function firstLine(text: string): string {
  return (text.split("\n")[0] ?? "").trim();
}
