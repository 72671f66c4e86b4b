import type { DemoLeg } from "./demo-report.js";
import type { DemoRequest } from "./demo-requests.js";
import type { Fleet, FleetEngine } from "./fleet.js";
import type { Child } from "./processes.js";

/** What the demo runs on: a fleet, and what only its kind of engine knows. */
export interface DemoFleet {
  readonly fleet: Pick<Fleet<FleetEngine & { readonly child: Child }>, "pods" | "running" | "close">;
  /** Name of the model that its engines serve. */
  readonly model: string;
  /** Those that its engines can answer. */
  readonly requests: readonly DemoRequest[];
  /** The engines' calls since the last time it was asked, in order of start. */
  legs(): Promise<DemoLeg[]>;
}
