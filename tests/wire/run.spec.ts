import { describe, expect, it } from "vitest";
import type { Bed, EngineFace, Scenario } from "./bed.js";
import { choose, runScenario } from "./run.js";

const real = (name: string): EngineFace => ({ name, address: "127.0.0.1:1", sim: null, metrics: () => Promise.resolve([]) });

function bed(change: Partial<Bed> = {}): Bed {
  return { via: "sidecar", doors: { fail: { host: "127.0.0.1", port: 1 } }, model: "m", prefill: real("p"), decode: real("d"), encode: [], patienceMs: 5, clear: () => Promise.resolve(), ...change };
}

function scenario(change: Partial<Scenario>): Scenario {
  return { name: "s", rows: [], setting: "fail", needs: [], run: () => Promise.resolve([]), ...change };
}

describe("runScenario", () => {
  it("hands on what was found, after a clear bed", async () => {
    const order: string[] = [];
    const outcome = await runScenario(
      bed({ clear: () => Promise.resolve(void order.push("clear")) }),
      scenario({
        run: () => {
          order.push("run");
          return Promise.resolve(["wrong"]);
        },
      }),
    );
    expect([outcome.scenario, outcome.violations, order]).toEqual(["s", ["wrong"], ["clear", "run"]]);
  });

  it("makes a violation of a scenario that throws, of a bed that does, and of one that does not end", async () => {
    expect((await runScenario(bed(), scenario({ run: () => Promise.reject(new Error("oops")) }))).violations[0]).toContain("oops");
    expect((await runScenario(bed({ clear: () => Promise.reject(new Error("no bed")) }), scenario({}))).violations[0]).toContain("no bed");
    expect((await runScenario(bed(), scenario({ run: () => new Promise(() => undefined) }))).violations).toEqual(["the scenario does not end"]);
  });
});

describe("choose", () => {
  it("leaves out what the bed has not got, and says why", () => {
    const all = [
      scenario({ name: "any" }),
      scenario({ name: "records", needs: ["sim"] }),
      scenario({ name: "pictures", needs: ["encoders"] }),
      scenario({ name: "headers", needs: ["sidecar"] }),
      scenario({ name: "local", setting: "local" }),
    ];
    expect(choose(bed({ via: "gateway" }), all)).toMatchObject({
      chosen: [{ name: "any" }],
      left: [
        { scenario: "records", why: "engines that keep no records" },
        { scenario: "pictures", why: "fewer than two encoders" },
        { scenario: "headers", why: "not the sidecar's own door" },
        { scenario: "local", why: 'no door "local"' },
      ],
    });
  });
});
