/** One data segment of a module. */
export interface Segment {
  at: number;
  data: Uint8Array;
}
/** What the compiler is allowed to use, and Envoy's V8 reads; a number of `binaryen.Features`. */
export const FEATURES: number;
export function packed(segments: readonly Segment[]): Buffer;
export function pack(bytes: Uint8Array): Buffer;
