import type { ApiShape, BodyScanner } from "./types.js";

/** Makes the scanner of one body. */
export type ScannerFactory = (shape: ApiShape) => BodyScanner;

// The one line that says which scanner the sidecar runs.
export { createScanner as makeScanner } from "./scanner.js";
