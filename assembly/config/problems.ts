// What is wrong with a configuration, and what is merely worth knowing. Nothing throws: readers add to this list and go on with a default.

/** Problems kept of each sort; a file with more of them is not read more closely. */
export const MAX_PROBLEMS: i32 = 100;

export class Problem {
  constructor(
    /** Like `plugins[2].parameters.nonCachedTokens`; "" is the document itself. */
    public readonly path: string,
    public readonly message: string,
  ) {}
}

export class Problems {
  /** The configuration is refused. In the order of reading, which is the same for the same text. */
  readonly errors: Array<Problem> = [];
  /** It is accepted, and an operator should know. */
  readonly warnings: Array<Problem> = [];

  error(path: string, message: string): void {
    add(this.errors, path, message);
  }

  warn(path: string, message: string): void {
    add(this.warnings, path, message);
  }
}

function add(list: Array<Problem>, path: string, message: string): void {
  if (list.length < MAX_PROBLEMS) list.push(new Problem(path, message));
  else if (list.length == MAX_PROBLEMS) list.push(new Problem("", "further problems are left out"));
}
