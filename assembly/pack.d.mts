/** One data segment of a module. */
export interface Segment {
  at: number;
  data: Uint8Array;
}
export function packed(segments: readonly Segment[]): Buffer;
export function pack(bytes: Uint8Array): Buffer;
