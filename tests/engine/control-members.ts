/** Which control members a body brought to this engine, wherever the real one follows them (real-engine §4, "More doors to the same members"). */

import { isObject, member, type Json } from "./json.js";

const TRANSFER_MEMBERS = ["kv_transfer_params", "ec_transfer_params"];

/** Paths of the members that are there and not null, names with their escapes resolved. */
export function controlMembers(body: Json | undefined): string[] {
  if (!isObject(body)) return [];
  const paths: string[] = [];
  for (const name of Object.keys(body)) {
    const there = member(body, name) !== null;
    if (there && (TRANSFER_MEMBERS.includes(name) || name.startsWith("bootstrap_"))) paths.push(name);
  }
  const sampling = member(body, "sampling_params");
  const extras: [string, Json | undefined][] = [
    ["vllm_xargs", member(body, "vllm_xargs")],
    ["sampling_params.extra_args", isObject(sampling) ? member(sampling, "extra_args") : undefined],
  ];
  for (const [path, extra] of extras) {
    if (!isObject(extra)) continue;
    for (const name of TRANSFER_MEMBERS) if ((member(extra, name) ?? null) !== null) paths.push(`${path}.${name}`);
  }
  return paths;
}
