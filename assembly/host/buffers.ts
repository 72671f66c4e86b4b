// Bodies and configurations, read piece by piece.
import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { OK, OUT, outPtr, outSize } from "./status";

export const enum BufferKind {
  RequestBody = 0,
  CallResponseBody = 4,
  PluginConfiguration = 7,
}

export let pieceAt: usize = 0;
export let pieceSize: u32 = 0;

/** Copies `[start, start+size)` of a buffer in; false when it is not there. */
export function readPiece(kind: BufferKind, start: u32, size: u32): bool {
  if (abi.proxy_get_buffer_bytes(kind, start, size, OUT, OUT + 4) != OK) return false;
  pieceAt = outPtr();
  pieceSize = outSize();
  return true;
}
