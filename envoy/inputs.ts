import { readFile } from "node:fs/promises";
import { isObject, type Json } from "./json.js";
import type { Problem } from "./problems.js";
import { parseYaml, type YamlText } from "./yaml.js";

/** A value of an input file that problems can point into. */
export interface Source {
  readonly file: string;
  readonly value: Json;
  lineOf(path: string): number;
}

export interface Inputs {
  readonly picker: Source;
  /** Null when neither file holds a FilterOptions document. */
  readonly options: Source | null;
  /** The endpoints file's top level; `endpoints` in it is a list. */
  readonly endpoints: Source;
}

export interface InputPaths {
  /** One EndpointPickerConfig; a FilterOptions document may stand beside it. */
  readonly config: string;
  /** FilterOptions in a file of their own; empty for none. */
  readonly options: string;
  readonly endpoints: string;
}

/** The reference's limit of an endpoints file (scheduler §8.1): a larger one is more likely another file than a fleet. */
const ENDPOINTS_LIMIT_BYTES = 1024 * 1024;

async function read(file: string, problems: Problem[], limitBytes = Infinity): Promise<Source[]> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    problems.push({ severity: "error", file, path: "", message: `cannot be read: ${error instanceof Error ? error.message : String(error)}` });
    return [];
  }
  if (Buffer.byteLength(text) > limitBytes) {
    problems.push({ severity: "error", file, path: "", message: `has more than ${String(limitBytes)} bytes` });
    return [];
  }
  const parsed = parseYaml(text, file);
  problems.push(...parsed.problems);
  return parsed.documents.map((document: YamlText) => ({ file, value: document.value, lineOf: (path: string) => document.lineOf(path) }));
}

function isOptions(source: Source): boolean {
  return isObject(source.value) && source.value.kind === "FilterOptions";
}

/**
 * Reads the input files and tells their documents apart. What stands in them is not judged here.
 *
 * @returns the inputs, or null with at least one error among the problems
 */
export async function readInputs(paths: InputPaths): Promise<{ inputs: Inputs | null; problems: Problem[] }> {
  const problems: Problem[] = [];
  const complain = (file: string, path: string, message: string, line?: number): void => {
    problems.push({ severity: "error", file, path, message, ...(line === undefined ? {} : { line }) });
  };
  const config = await read(paths.config, problems);
  const own = paths.options === "" ? [] : await read(paths.options, problems);
  const [endpoints, ...more] = await read(paths.endpoints, problems, ENDPOINTS_LIMIT_BYTES);
  if (problems.length > 0) return { inputs: null, problems };

  const [picker, second] = config.filter((source) => !isOptions(source));
  if (picker === undefined) complain(paths.config, "", "holds no EndpointPickerConfig document");
  if (second !== undefined) complain(paths.config, "", "holds more than one EndpointPickerConfig document (one of FilterOptions says kind: FilterOptions)", second.lineOf(""));
  const [options, another] = [...config.filter(isOptions), ...own];
  if (paths.options !== "" && own.length === 0) complain(paths.options, "", "holds no FilterOptions document");
  if (another !== undefined) complain(another.file, "", "a second FilterOptions document", another.lineOf(""));
  if (endpoints === undefined) complain(paths.endpoints, "", "is empty: 'endpoints' must be a list");
  else if (!isObject(endpoints.value) || !Array.isArray(endpoints.value.endpoints)) complain(paths.endpoints, "endpoints", "must be a list", endpoints.lineOf("endpoints"));
  if (more[0] !== undefined) complain(paths.endpoints, "", "holds more than one document", more[0].lineOf(""));
  if (problems.length > 0 || picker === undefined || endpoints === undefined) return { inputs: null, problems };
  return { inputs: { picker, options: options ?? null, endpoints }, problems };
}
