/** A body that says the same in other words: other white space and escapes, the members of objects in another order. */
import type { Random } from "./random.js";
import type { Node } from "./tree.js";

/**
 * Members of one name keep their order, since the last one counts. Not for trees that are deeper than the stack is long.
 *
 * @returns UTF-8
 */
export function respell(body: Buffer, root: Node, random: Random): Buffer {
  const pieces: string[] = [];
  const space = (): void => {
    if (random.oneIn(4)) pieces.push(random.pick([" ", "\n", "\t\r ", "      "]));
  };
  const write = (node: Node): void => {
    space();
    if (node.kind === "object") {
      pieces.push("{");
      const names = new Set(node.members.map(({ name }) => name));
      const ordered = random.shuffled([...names]).flatMap((name) => node.members.filter((member) => member.name === name));
      ordered.forEach(({ start, value }, index) => {
        if (index > 0) pieces.push(",");
        space();
        pieces.push(respelled(body, start, endOfString(body, start), random));
        space();
        pieces.push(":");
        write(value);
      });
      space();
      pieces.push("}");
    } else if (node.kind === "array") {
      pieces.push("[");
      node.items.forEach((item, index) => {
        if (index > 0) pieces.push(",");
        write(item);
      });
      space();
      pieces.push("]");
    } else if (node.kind === "string") pieces.push(respelled(body, node.start, node.end, random));
    else pieces.push(body.toString("latin1", node.start, node.end));
    space();
  };
  write(root);
  return Buffer.from(pieces.join(""), "latin1");
}

function endOfString(body: Buffer, start: number): number {
  let at = start + 1;
  while (body[at] !== 0x22) at += body[at] === 0x5c ? 2 : 1;
  return at + 1;
}

/** Bytes of a string token, as latin1; only single ASCII letters change, so that no character is torn. */
function respelled(body: Buffer, start: number, end: number, random: Random): string {
  const raw = body.toString("latin1", start, end);
  if (!random.oneIn(3)) return raw;
  let out = "";
  for (let at = 0; at < raw.length; at++) {
    const letter = raw.charAt(at);
    if (letter === "\\") {
      // As it is: behind `\u` stand digits, and what may be the half of a pair.
      const size = raw.charAt(at + 1) === "u" ? 6 : 2;
      out += raw.slice(at, at + size);
      at += size - 1;
    } else if (/[a-z0-9 ]/i.test(letter) && random.oneIn(6)) out += `\\u00${letter.charCodeAt(0).toString(16)}`;
    else out += letter;
  }
  return out;
}
