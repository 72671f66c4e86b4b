import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { compose } from "./compose.js";
import { type InputPaths, readInputs } from "./inputs.js";
import type { Problem } from "./problems.js";
import { type Publication, publish, readPublished } from "./publish.js";
import { checkSettings, type Settings } from "./settings.js";
import type { Validator } from "./validate.js";

export interface RenderJob extends InputPaths {
  /** The filter's module. */
  readonly wasm: string;
  /** The folder that is written. */
  readonly out: string;
  readonly settings: Settings;
}

export interface RenderResult {
  /** Null when nothing was written because of an error among the problems. */
  readonly publication: Publication | null;
  readonly problems: readonly Problem[];
}

function failure(file: string, path: string, error: unknown): Problem {
  return { severity: "error", file, path, message: error instanceof Error ? error.message : String(error) };
}

/**
 * Reads the inputs, has them judged and writes what Envoy loads. With any error nothing is written and what is there goes on; a bad entry of the endpoints file is no such
 * error.
 */
export async function renderOnce(job: RenderJob, validate: Validator): Promise<RenderResult> {
  const settingsProblems = checkSettings(job.settings).map((message) => failure("command line", "", new Error(message)));
  const { inputs, problems } = await readInputs(job);
  if (inputs === null || settingsProblems.length > 0) return { publication: null, problems: [...settingsProblems, ...problems] };
  const lastGood = (await readPublished(job.out))?.document.endpoints ?? [];
  const composed = compose(inputs, validate, lastGood);
  if (composed.composition === null) return { publication: null, problems: composed.problems };
  const { gateway } = composed.composition;
  // Only the machine that Envoy runs on can say whether it has the file; where the folder is mounted elsewhere it is not this one.
  if (gateway.tlsVerify && job.settings.mount === "" && !existsSync(job.settings.tlsCaFile)) {
    const missing = failure(inputs.options?.file ?? job.config, "options.tls.verify", new Error(`the CA file ${job.settings.tlsCaFile} does not exist (--tls-ca)`));
    return { publication: null, problems: [...composed.problems, missing] };
  }
  let module: Uint8Array;
  try {
    module = await readFile(job.wasm);
  } catch (error) {
    return { publication: null, problems: [...composed.problems, failure(job.wasm, "", error)] };
  }
  try {
    return { publication: await publish(composed.composition, module, job.settings, job.out), problems: composed.problems };
  } catch (error) {
    return { publication: null, problems: [...composed.problems, failure(job.out, "", error)] };
  }
}
