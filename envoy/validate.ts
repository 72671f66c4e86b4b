import { readFile } from "node:fs/promises";

export interface ValidatorProblem {
  /** As in `plugins[2].parameters.nonCachedTokens` (relative to the EndpointPickerConfig), `options.scrape.intervalMs`, `endpoints[3].port`. */
  readonly path: string;
  readonly message: string;
}

export interface ValidationReport {
  /** Any of these, and the filter refuses the document. */
  readonly errors: readonly ValidatorProblem[];
  readonly warnings: readonly ValidatorProblem[];
  /** Places in the document's list of the endpoints that may decode; empty with any error. */
  readonly decodeEndpoints: readonly number[];
  /** Places of the endpoints that were accepted; the others are left out, each with a warning under its path. */
  readonly endpoints: readonly number[];
  /** Port that replaces a decode endpoint's own in the destination; 0 for none. */
  readonly primaryPort: number;
}

/** The filter's own validation, so that renderer and filter never differ (DESIGN, decision 7): a plugin document's text in, the report out. */
export type Validator = (pluginDocumentJson: string) => ValidationReport;

/** What build/scanner.wasm exports for this: plain addresses and numbers, texts as UTF-8. */
interface ScannerExports {
  readonly memory: WebAssembly.Memory;
  _initialize(): void;
  allocate(size: number): number;
  release(at: number): void;
  /** Address of the report; {@link textSize} bytes long, good until the next call. */
  validate(at: number, size: number): number;
  textSize(): number;
}

/** Makes a validator of a module that exports it. */
export function validatorOf(exports: ScannerExports): Validator {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  return (pluginDocumentJson) => {
    const document = new TextEncoder().encode(pluginDocumentJson);
    const at = exports.allocate(document.length);
    // Memory may have grown, and with that moved, in any call.
    new Uint8Array(exports.memory.buffer, at, document.length).set(document);
    const reportAt = exports.validate(at, document.length);
    const report = decoder.decode(new Uint8Array(exports.memory.buffer, reportAt, exports.textSize()));
    exports.release(at);
    return JSON.parse(report) as ValidationReport;
  };
}

/**
 * Loads the filter's validator.
 *
 * @param file build/scanner.wasm
 * @throws Error when the file cannot be read or is no such module
 */
export async function loadValidator(file: string): Promise<Validator> {
  const { instance } = await WebAssembly.instantiate(await readFile(file), {});
  const exports = instance.exports as unknown as Partial<ScannerExports>;
  const { memory, _initialize, allocate, release, validate, textSize } = exports;
  if (!memory || !_initialize || !allocate || !release || !validate || !textSize) throw new Error("is not a module that holds the validator");
  _initialize();
  return validatorOf({ memory, _initialize, allocate, release, validate, textSize });
}
