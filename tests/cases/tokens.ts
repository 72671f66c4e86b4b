/**
 * Byte identity of bodies (cases, `untouched` and `bytes_identical_except`): white space between tokens does not count, everything else is compared byte for
 * byte, so a number re-written by a double, a re-escaped string or a re-ordered member shows.
 */
import { parse, tokenAt, type Member } from "./json.js";

/** The same JSON tokens in the same order, each byte for byte. */
function sameTokens(left: Buffer, leftStart: number, leftEnd: number, right: Buffer, rightStart: number, rightEnd: number): boolean {
  const one = left.subarray(0, leftEnd);
  const two = right.subarray(0, rightEnd);
  let leftAt = leftStart;
  let rightAt = rightStart;
  for (;;) {
    const a = tokenAt(one, leftAt);
    const b = tokenAt(two, rightAt);
    if (a.kind !== b.kind) return false;
    if (a.kind === "end") return true;
    if (one.compare(two, b.start, b.end, a.start, a.end) !== 0) return false;
    leftAt = a.end;
    rightAt = b.end;
  }
}

function describe(member: Member | undefined): string {
  return member === undefined ? "nothing" : `"${member.name}"`;
}

/**
 * null when the two texts are the same tokens once the top-level members named in `except` (escapes resolved) are left out; otherwise what differs, without
 * the values. Throws JsonError for a text that is not JSON.
 */
export function differenceExcept(client: Buffer, leg: Buffer, except: readonly string[]): string | null {
  const left = parse(client);
  const right = parse(leg);
  if (left.members === null || right.members === null) {
    return sameTokens(client, 0, client.length, leg, 0, leg.length) ? null : "the bodies differ";
  }
  const kept = (members: readonly Member[]): Member[] => members.filter((member) => !except.includes(member.name));
  const ours = kept(left.members);
  const theirs = kept(right.members);
  for (let at = 0; at < Math.max(ours.length, theirs.length); at++) {
    const a = ours[at];
    const b = theirs[at];
    if (a === undefined || b === undefined || client.compare(leg, b.nameStart, b.nameEnd, a.nameStart, a.nameEnd) !== 0) {
      return `member ${(at + 1).toString()} is ${describe(b)} where the client sent ${describe(a)}`;
    }
    if (!sameTokens(client, a.valueStart, a.valueEnd, leg, b.valueStart, b.valueEnd)) return `${describe(a)} is not the client's`;
  }
  return null;
}

/** null when the member (all its copies, in order) has the client's bytes in the leg's text, white space inside the value included; otherwise what differs. */
export function memberDifference(client: Buffer, leg: Buffer, name: string): string | null {
  const copies = (text: Buffer): Buffer[] =>
    (parse(text).members ?? []).filter((member) => member.name === name).map((member) => text.subarray(member.valueStart, member.valueEnd));
  const ours = copies(client);
  const theirs = copies(leg);
  if (ours.length === 0) return `the client sent no "${name}"`;
  if (theirs.length !== ours.length) return `"${name}" is there ${theirs.length.toString()} times, the client sent it ${ours.length.toString()} times`;
  return ours.every((bytes, index) => bytes.equals(theirs[index] ?? Buffer.alloc(0))) ? null : `"${name}" is not the client's, byte for byte`;
}
