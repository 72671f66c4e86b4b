/** A clock that all processes of a machine share to the microsecond and that nobody sets: ms of an unknown beginning. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
