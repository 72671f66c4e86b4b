// The little of the WebAssembly API that is used, which @types/node leaves to the DOM's library.
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
  }
  class Instance {
    constructor(module: Module, imports?: Record<string, Record<string, unknown>>);
    readonly exports: Record<string, unknown>;
  }
  function instantiate(bytes: Uint8Array, imports?: Record<string, Record<string, unknown>>): Promise<{ readonly instance: Instance; readonly module: Module }>;
  interface Memory {
    readonly buffer: ArrayBuffer;
  }
}
