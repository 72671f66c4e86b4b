/**
 * The module's own name for itself. The build writes the version and a hash of the code in place of the marks (same length, so the module's layout stays): two modules
 * with other bytes never report the same.
 */
const STAMP: string = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";

export function version(): string {
  return STAMP.trimEnd();
}

/** A number that differs from module to module. */
export function moduleNumber(): u32 {
  let h: u32 = 0x811c9dc5;
  for (let i = 0; i < STAMP.length; i++) h = (h ^ <u32>STAMP.charCodeAt(i)) * 0x01000193;
  return h;
}
