/** The plain reader with the face of the sidecar's scanner: what a body says to the stages that edit it. */
import type { ApiShape, BodyScanner, BodyView } from "../../sidecar/body/types.js";
import { Identities, readRequest, SIDECAR_OPTIONS } from "./request-view.js";

/** Far from any body that an engine would read, so that a test says what it means. */
export const DEFAULT_LIMITS: Limits = { maxDepth: 1_000_000, maxMembers: 1_000_000 };

export interface Limits {
  /** Arrays and objects that may be open at once. */
  readonly maxDepth: number;
  /** Known members that may be reported. */
  readonly maxMembers: number;
}

export function createPlainScanner(shape: ApiShape, limits: Limits = DEFAULT_LIMITS): BodyScanner {
  const pieces: Uint8Array[] = [];
  return {
    feed: (piece) => {
      pieces.push(piece);
    },
    end: () => readBody(Buffer.concat(pieces), shape, limits),
    dispose: () => {
      pieces.length = 0;
    },
  };
}

/** The keys of media are good for comparing parts of this body with each other. */
export function readBody(body: Buffer, shape: ApiShape, limits: Limits = DEFAULT_LIMITS): BodyView {
  const view = readRequest(body, { ...SIDECAR_OPTIONS, ...limits, shape }, new Identities());
  const { error, errorOffset, isObject, objectStart, objectEnd, members, media, neverSplit, stream } = view;
  return { error, errorOffset, isObject, objectStart, objectEnd, members, neverSplit, stream, media: media.map(({ type, start, end, key }) => ({ type, start, end, key: BigInt(key) })) };
}
