import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseOptions } from "../../sidecar/options.js";
import { type Sidecar, startSidecar } from "../../sidecar/server.js";
import { type Bed, SETTING_NAMES, SETTINGS } from "./bed.js";
import { choose, runScenario } from "./run.js";
import { SCENARIOS } from "./scenarios.js";
import { SimulatedEngines } from "./simulated.js";

describe("the wire of our sidecar, on simulated engines", () => {
  let engines: SimulatedEngines;
  let bed: Bed;
  const sidecars: Sidecar[] = [];

  beforeAll(async () => {
    engines = await SimulatedEngines.start();
    const doors: Record<string, { host: string; port: number }> = {};
    for (const setting of SETTING_NAMES) {
      const flags = ["--secure-proxy=false", "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", `--model-server-port=${String(engines.decode.port)}`, "--log-level=silent", "--ec-connector=ec-nixl", ...SETTINGS[setting]];
      const sidecar = await startSidecar({ ...parseOptions(flags, {}).options, port: 0 });
      sidecars.push(sidecar);
      doors[setting] = { host: "127.0.0.1", port: sidecar.port };
    }
    bed = engines.bed(doors);
  });
  afterAll(async () => {
    await Promise.all(sidecars.map((sidecar) => sidecar.close()));
    await engines.close();
  });

  it("has names of their own for all scenarios, and runs every one of them", () => {
    expect(new Set(SCENARIOS.map(({ name }) => name)).size).toBe(SCENARIOS.length);
    expect(choose(bed, SCENARIOS).left).toEqual([]);
  });

  it.each(SCENARIOS.map((scenario) => [[...scenario.rows, scenario.name].join(" "), scenario] as const))("%s", async (_, scenario) => {
    expect((await runScenario(bed, scenario)).violations).toEqual([]);
  });
});
