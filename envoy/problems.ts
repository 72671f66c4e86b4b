/** How bad a problem is: an `error` stops the rendering, an `entry` concerns one endpoint and leaves the others alone, a `warning` changes nothing. */
export type Severity = "error" | "entry" | "warning";

/** One thing that is wrong with an input, said so that its author can find it. */
export interface Problem {
  readonly severity: Severity;
  /** The input file, as it was named on the command line. */
  readonly file: string;
  /** 1-based line in {@link file}, where it is known. */
  readonly line?: number;
  /** Field path as in `plugins[2].parameters.nonCachedTokens`; empty for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

 
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/** `file:line: error: path: message`, the form that editors and terminals link. */
export function formatProblem(problem: Problem): string {
  const place = problem.line === undefined ? problem.file : `${problem.file}:${String(problem.line)}`;
  const word = problem.severity === "warning" ? "warning" : "error";
  const text = [place, word, ...(problem.path === "" ? [] : [problem.path]), problem.message].join(": ");
  // Names come from the inputs: what would steer a terminal is spelled out.
  return text.replace(CONTROL, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
