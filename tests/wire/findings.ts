/** The violations that a scenario collects, as text. */

/** Longer values say where they differ, not all that they hold. */
const SHOWN = 160;

export class Findings {
  readonly list: string[] = [];

  /** @returns whether it holds, for checks that only make sense then */
  that(holds: boolean, violation: string): boolean {
    if (!holds) this.list.push(violation);
    return holds;
  }

  /** Equality as JSON text. */
  same(what: string, seen: unknown, wanted: unknown): boolean {
    const [left, right] = [textOf(seen), textOf(wanted)];
    if (left === right) return true;
    const at = differenceAt(left, right);
    return this.that(false, `${what}: ${excerpt(left, at)} where ${excerpt(right, at)} is wanted`);
  }
}

function textOf(value: unknown): string {
  if (Buffer.isBuffer(value)) return value.toString("latin1");
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "nothing");
}

function differenceAt(left: string, right: string): number {
  let at = 0;
  while (at < left.length && at < right.length && left[at] === right[at]) at++;
  return at;
}

/** The text around the place where two of them begin to differ. */
function excerpt(text: string, at: number): string {
  if (text.length <= SHOWN) return text === "" ? "nothing" : text;
  const from = Math.max(0, at - SHOWN / 4);
  return `${from > 0 ? "…" : ""}${text.slice(from, from + SHOWN)}${from + SHOWN < text.length ? "…" : ""}`;
}
