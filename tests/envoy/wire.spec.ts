import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Engine, EngineDirectory, startEngine } from "../engine/index.js";
import { Fleet } from "../fleet/fleet.js";
import { pickerDocument } from "../fleet/picker.js";
import type { Bed } from "../wire/bed.js";
import { choose, runScenario } from "../wire/run.js";
import { SCENARIOS } from "../wire/scenarios.js";
import { bedOf } from "../wire/simulated.js";

// The wire scenarios that a client can run from outside, through Envoy, filter and sidecar: here the filter decides what is split.

describe("the wire of the whole stack, on simulated engines", () => {
  let fleet: Fleet<Engine>;
  let bed: Bed;

  beforeAll(async () => {
    const peers = new EngineDirectory();
    fleet = await Fleet.start<Engine>({
      pods: { decode: 1, prefill: 1, encode: 2 },
      startEngine: ({ name, role, host }) => startEngine({ name, role, host, peers, ecConnector: role === "encode" ? "ec-nixl" : "any" }),
      envoy: { picker: pickerDocument({ prefill: true, encode: true, encoders: 2 }) },
      sidecarFlags: [["ec-connector", "ec-nixl"]],
      taps: false,
    });
    const { running } = fleet;
    if (running === null) throw new Error("no Envoy");
    const engines = { prefill: fleet.pod("p0").engine, decode: fleet.pod("d0").engine, encode: fleet.of("encode").map(({ engine }) => engine) };
    bed = { ...bedOf(engines, { fail: running.listen }), via: "gateway" };
  });
  afterAll(async () => {
    await fleet.close();
  });

  it.each(SCENARIOS.filter(({ needs, setting }) => setting === "fail" && !needs.includes("sidecar")).map((scenario) => [scenario.name, scenario] as const))("%s", async (_, scenario) => {
    expect(choose(bed, [scenario]).left).toEqual([]);
    expect((await runScenario(bed, scenario)).violations).toEqual([]);
  });
});
