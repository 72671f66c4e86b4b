/** What the HTTP face needs of the engine. */

import type { Incarnation } from "../incarnation.js";
import type { ResolvedOptions } from "../options.js";
import type { ScriptEntry, Stage } from "../types.js";

export interface AppHost {
  readonly options: ResolvedOptions;
  readonly life: Incarnation;
  readonly dead: string | null;
  takeScript(stage: Stage): ScriptEntry | null;
  /** The process has died: everything in flight gets to know it. */
  die(reason: string): void;
  openCalls(): number;
}
