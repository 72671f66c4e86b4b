/** The filter's module with a way to trap it: no input makes the real one trap. */
import binaryen from "binaryen";
import { FEATURES } from "../../assembly/pack.mjs";

/** A request with so many headers or more traps the VM of the worker that serves it. */
export const TRAP_HEADERS = 64;

const HOOK = "proxy_on_request_headers";

/** @param module - the filter @returns the same code, and an `unreachable` in front of one callback */
export function trapping(module: Uint8Array): Buffer {
  const parsed = binaryen.readBinary(module);
  try {
    // What the build allows (assembly/build.mjs): with more, the module is written in forms that Envoy's V8 does not load.
    parsed.setFeatures(FEATURES);
    let original = "";
    for (let i = 0; i < parsed.getNumExports(); i++) {
      const each = binaryen.getExportInfo(parsed.getExportByIndex(i));
      if (each.name === HOOK) original = each.value;
    }
    const { params, results } = binaryen.getFunctionInfo(parsed.getFunction(original));
    const count = binaryen.expandType(params).length;
    const local = (index: number): binaryen.ExpressionRef => parsed.local.get(index, binaryen.i32);
    const body = parsed.block(null, [
      parsed.if(parsed.i32.ge_u(local(1), parsed.i32.const(TRAP_HEADERS)), parsed.unreachable()),
      parsed.call(
        original,
        Array.from({ length: count }, (_none, index) => local(index)),
        results,
      ),
    ], results);
    parsed.addFunction("trap_or_call", params, results, [], body);
    parsed.removeExport(HOOK);
    parsed.addFunctionExport("trap_or_call", HOOK);
    if (parsed.validate() === 0) throw new Error("the trapping module is not valid");
    return Buffer.from(parsed.emitBinary());
  } finally {
    parsed.dispose();
  }
}
