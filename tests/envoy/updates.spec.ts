/** Rendering into a folder that a running Envoy reads. */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { freePort } from "../fleet/ports.js";
import { errorOf, Gateway, json, until, WITH_STAND_IN } from "./gateway.js";
import { type Echo, Pod } from "./pod.js";
import { compileStandIn } from "./stand-in.js";

const pods: Pod[] = [];
const gateways: Gateway[] = [];

async function pod(name: string): Promise<Pod> {
  const made = await Pod.start({ name });
  pods.push(made);
  return made;
}
async function start(options: Parameters<typeof Gateway.start>[0]): Promise<Gateway> {
  const made = await Gateway.start(options);
  gateways.push(made);
  return made;
}
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.stop()));
  await Promise.all(pods.splice(0).map((one) => one.close()));
});

/** Revision of the document by which the stand-in decides. */
async function servedRevision(gateway: Gateway): Promise<number> {
  const answer = await gateway.send({ path: "/v1/models" });
  expect(answer.status).toBe(200);
  const { rawHeaders } = json(answer) as Echo;
  return Number(rawHeaders[rawHeaders.indexOf("x-stand-in-revision") + 1]);
}

function published(gateway: Gateway, file: string): string {
  return readFileSync(join(gateway.out, file), "utf8");
}

function revisionOf(gateway: Gateway): number {
  return (JSON.parse(published(gateway, "plugin.json")) as { revision: number }).revision;
}

describe.runIf(WITH_STAND_IN)("an update", () => {
  it("reaches the filter and the cluster, without a failed request", async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0], concurrency: 2 });
    expect(await servedRevision(gateway)).toBe(revisionOf(gateway));
    let failed = 0;
    let asked = 0;
    let over = false;
    const load = (async () => {
      while (!over) {
        asked++;
        if ((await gateway.send({ method: "POST", path: "/v1/completions", body: Buffer.from("{}") })).status !== 200) failed++;
      }
    })();
    const first = revisionOf(gateway);
    gateway.writeEndpoints([d0, d1]);
    const added = await gateway.renderAgain();
    expect(added.publication?.revision).toBeGreaterThan(first);
    expect(added.publication?.restartNeeded).toBe(false);
    await until("the new revision", async () => (await servedRevision(gateway)) === added.publication?.revision);
    expect(await gateway.stat("cluster.decode.membership_total")).toBe(2);

    gateway.writeEndpoints([d1]);
    const removed = await gateway.renderAgain();
    await until("the newest revision", async () => (await servedRevision(gateway)) === removed.publication?.revision);
    await until("the smaller cluster", async () => (await gateway.stat("cluster.decode.membership_total")) === 1);
    for (let i = 0; i < 5; i++) expect((json(await gateway.send({ path: "/v1/models" })) as Echo).pod).toBe("d1");
    over = true;
    await load;
    expect(asked).toBeGreaterThan(10);
    expect(failed).toBe(0);
    expect(await gateway.stat("wasm.envoy.wasm.runtime.v8.active")).toBeGreaterThan(0);
  });

  it("writes the cluster before the filter when pods come, behind it when they go, and both ways when some come and some go", async () => {
    const [d0, d1, d2] = [await pod("d0"), await pod("d1"), await pod("d2")];
    const gateway = await start({ endpoints: [d0] });
    const files = async (endpoints: Pod[]): Promise<readonly string[]> => {
      gateway.writeEndpoints(endpoints);
      return (await gateway.renderAgain()).publication?.written ?? [];
    };
    expect(await files([d0, d1])).toEqual(["eds.json", "plugin.json", "ecds-state.json", "ecds.json"]);
    expect(await files([d0])).toEqual(["plugin.json", "ecds-state.json", "ecds.json", "eds.json"]);
    expect(await files([d1, d2])).toEqual(["eds.json", "plugin.json", "ecds-state.json", "ecds.json", "eds.json"]);
    expect(await files([d1, d2])).toEqual([]);
  });

  it("of the module is a file of another name, and open streams go on", async () => {
    const d0 = await pod("d0");
    const gateway = await start({ endpoints: [d0] });
    let text = "";
    const stream = gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-pod-stream", "0"]], body: Buffer.from("{}"), onBody: (piece) => (text += piece.toString()) });
    await until("the stream's first piece", () => text.includes("x"));
    const before = readdirSync(gateway.out).filter((name) => name.endsWith(".wasm"));
    for (const version of ["version-2", "version-3"]) {
      writeFileSync(gateway.file("filter.wasm"), await compileStandIn(version));
      const { publication } = await gateway.renderAgain();
      expect(publication?.written[0]).toMatch(/^filter-[0-9a-f]{16}\.wasm$/);
      expect(before).not.toContain(publication?.written[0]);
      await until(`${version} on the state listener`, async () => {
        const { state } = gateway.settings;
        return (await (await fetch(`http://${state.host}:${String(state.port)}/`)).text()).includes(version);
      });
      await until("the revision", async () => (await servedRevision(gateway)) === publication?.revision);
    }
    d0.finish();
    expect((await stream).end).toBe("clean");
    expect(text).toBe("xxxxxxxxend");
  });

  it("is refused by the filter, and the old one goes on", async () => {
    const d0 = await pod("d0");
    const gateway = await start({ endpoints: [d0] });
    const first = revisionOf(gateway);
    const refused = published(gateway, "ecds.json").replace('\\"revision\\"', '\\"stand-in-refuses\\":1,\\"revision\\"');
    writeFileSync(join(gateway.out, "ecds.new"), refused);
    renameSync(join(gateway.out, "ecds.new"), join(gateway.out, "ecds.json"));
    await until("the refusal", async () => {
      const stats = await gateway.running.admin.stats();
      return [...stats].some(([name, value]) => /extension_config_discovery.*crosspoint\.update_rejected$|crosspoint.config_fail$/.test(name) && value > 0);
    });
    expect(await servedRevision(gateway)).toBe(first);
  });

  it("survives a folder that is mounted through a link, as a ConfigMap is", async () => {
    const d0 = await pod("d0");
    // Rendered elsewhere, and seen by Envoy under DIR/..data/.
    const gateway = await Gateway.render({ endpoints: [d0], settings: {} });
    gateways.push(gateway);
    const mount = gateway.file("mount");
    mkdirSync(mount);
    const version = (n: number): void => {
      const data = join(mount, `..v${String(n)}`);
      mkdirSync(data);
      for (const name of readdirSync(gateway.out)) writeFileSync(join(data, name), readFileSync(join(gateway.out, name)));
      symlinkSync(`..v${String(n)}`, join(mount, "..tmp"));
      renameSync(join(mount, "..tmp"), join(mount, "..data"));
    };
    const mounted = await Gateway.render({ endpoints: [d0], settings: { mount, accessLog: gateway.file("mounted.log") } });
    gateways.push(mounted);
    rmSync(gateway.out, { recursive: true });
    mkdirSync(gateway.out);
    const copy = (): void => {
      for (const name of readdirSync(mounted.out)) writeFileSync(join(gateway.out, name), readFileSync(join(mounted.out, name)));
    };
    copy();
    version(1);
    for (const name of readdirSync(mounted.out)) symlinkSync(join("..data", name), join(mount, name));
    await mounted.startEnvoy();
    const first = await servedRevision(mounted);
    expect(first).toBe(revisionOf(mounted));
    mounted.writeOptions({ reasonHeader: true });
    const { publication } = await mounted.renderAgain();
    copy();
    version(2);
    await until("the new revision", async () => (await servedRevision(mounted)) === publication?.revision);
    expect(publication?.revision).toBeGreaterThan(first);
  });
});

describe("before the filter is there", () => {
  it("nothing passes: an Envoy whose filter is refused answers 503 as JSON, and serves once a good one comes", { timeout: 60_000 }, async () => {
    if (!WITH_STAND_IN) return;
    const d0 = await pod("d0");
    const gateway = await Gateway.render({ endpoints: [d0] });
    gateways.push(gateway);
    const good = published(gateway, "ecds.json");
    writeFileSync(join(gateway.out, "ecds.json"), good.replace('\\"revision\\"', '\\"stand-in-refuses\\":1,\\"revision\\"'));
    await gateway.startEnvoy();
    for (const [method, path] of [["GET", "/v1/models"], ["POST", "/v1/completions"], ["GET", "/health"]] as const) {
      const answer = await gateway.send({ method, path, ...(method === "POST" ? { body: Buffer.from("{}") } : {}) });
      expect(answer.status).toBe(503);
      expect(errorOf(answer).type).toBe("ServiceUnavailable");
    }
    expect(d0.requests).toEqual([]);
    writeFileSync(join(gateway.out, "ecds.new"), good);
    renameSync(join(gateway.out, "ecds.new"), join(gateway.out, "ecds.json"));
    await until("service", async () => (await gateway.send({ path: "/v1/models" })).status === 200);
  });
});

describe("replacing files", () => {
  it("is whole at any moment", async () => {
    const gateway = await Gateway.render({ endpoints: [{ name: "d0", host: "127.0.0.1", port: await freePort() }] });
    gateways.push(gateway);
    let torn = 0;
    let reads = 0;
    const watcher = watch(gateway.out, () => {
      for (const name of ["ecds.json", "ecds-state.json", "eds.json", "plugin.json"]) {
        try {
          JSON.parse(published(gateway, name));
          reads++;
        } catch {
          torn++;
        }
      }
    });
    for (let i = 0; i < 5; i++) {
      gateway.writeEndpoints(Array.from({ length: 200 + i }, (_, n) => ({ name: `d${String(n)}`, host: "10.0.0.1", port: 1000 + n })));
      expect((await gateway.renderAgain()).publication).not.toBeNull();
    }
    watcher.close();
    expect(reads).toBeGreaterThan(10);
    expect(torn).toBe(0);
    expect(readdirSync(gateway.out).filter((name) => name.includes("tmp"))).toEqual([]);
  });
});
