/** What scripted engines answer in scenarios that are about bytes. */
import type { ScriptEntry } from "../engine/index.js";

let handedOut = 0;

/** Transfer parameters that no parser keeps as they are: white space, escapes, numbers beyond doubles, a name twice, members that nobody knows. Never twice the same request id. */
export function oddParams(): string {
  handedOut += 1;
  return `{ "do_remote_prefill" : true,"do_remote_decode":false, "remote_block_ids":[ [1 ,2], [] ],\n"remote_engine_id":"\\u0065ng\\/1", "remote_request_id":"wire-${String(handedOut)}","remote_host":"127.0.0.1","remote_port":"5600","remote_num_tokens":9007199254740993,"f":1.0,"e":1E400,"-":-0.0,"x":{"deep":[{"a":null}]},"x":2, "transfer_mode":"pull" }`;
}

/** A prefill answer with these parameters; their name stands there twice, the last one counts. `more`: further members, each with a comma behind. */
export function prefillAnswer(params: string, more = ""): ScriptEntry {
  return { status: 200, headers: { "content-type": "application/json" }, text: `{"id":"x",${more}"kv_transfer_params":{"remote_request_id":"not-this"},"choices":[], "kv_transfer_params" : ${params} ,"ec_transfer_params":null}` };
}

/** One prefill answer per call, each with a hand-off of its own. */
export function prefillAnswers(count: number): { readonly params: readonly string[]; readonly script: ScriptEntry[] } {
  const params = Array.from({ length: count }, oddParams);
  return { params, script: params.map((text) => prefillAnswer(text)) };
}

export const OK: ScriptEntry = { status: 200, json: { ok: true } };
