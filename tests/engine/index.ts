/**
 * The simulated engine: vLLM-shaped, as strict as the real one about hand-offs, and honest about what reached it.
 *
 * - `startEngine(options)` runs one in this process; `main.ts` runs one as a program.
 * - `ScriptQueue` holds one role's script; give the same object to every engine of the role, so that calls are counted over all of them.
 * - `EngineDirectory` is the shared store of `ec-example` for engines of one process.
 */

export { startEngine } from "./engine.js";
export { ScriptQueue, parseScript } from "./script.js";
export { EngineDirectory } from "./directory.js";
export { clockMs } from "./record.js";
export type {
  EcConnectorName,
  Engine,
  EngineOptions,
  EngineRecord,
  EngineState,
  HandoffRecord,
  KvConnectorName,
  MediaRecord,
  Role,
  Script,
  ScriptEntry,
  ScriptTcp,
  Stage,
} from "./types.js";
