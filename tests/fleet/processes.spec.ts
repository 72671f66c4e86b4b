import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { AccessLog } from "./access-log.js";
import { readPrometheus, readStats, sumOf } from "./admin.js";
import { CountingListener } from "./counter.js";
import { send } from "./http.js";
import { freePort, hasIpv6, portTaken } from "./ports.js";
import { Child } from "./processes.js";
import { pickerDocument } from "./picker.js";
import { built } from "./root.js";

function node(script: string): Child {
  return new Child({ name: "a child", command: process.execPath, args: ["-e", script] });
}

/** It runs; a process that has ended and waits for its parent to notice does not. */
function lives(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid.toString()}/stat`, "utf8"));
  } catch {
    return false;
  }
}

describe("child processes", () => {
  it("are waited for, and say why when they end before they are ready", async () => {
    const child = node('console.error("listen EADDRINUSE 127.0.0.1"); process.exit(3)');
    await expect(child.until("ready", () => Promise.resolve(false), 5000)).rejects.toThrow(/a child ended \(exit code 3\) before ready:\nlisten EADDRINUSE/);
    expect(child.died).toBe(true);
  });

  it("end by SIGTERM, by SIGKILL when they do not, and do not count as dead then", async () => {
    const polite = node('console.log("up"); setInterval(() => 0, 1000)');
    await polite.until("up", () => Promise.resolve(polite.output.includes("up")), 5000);
    await polite.stop();
    expect(await polite.ended).toBe("signal SIGTERM");
    expect(polite.died).toBe(false);

    const deaf = node('process.on("SIGTERM", () => 0); console.log("up"); setInterval(() => 0, 1000)');
    await deaf.until("up", () => Promise.resolve(deaf.output.includes("up")), 5000);
    await deaf.stop(100);
    expect(await deaf.ended).toBe("signal SIGKILL");
    expect(lives(deaf.pid)).toBe(false);
  });

  it("time out with their last lines", async () => {
    const child = node('console.log("still starting"); setInterval(() => 0, 1000)');
    await child.until("a line", () => Promise.resolve(child.output !== ""), 5000);
    await expect(child.until("ready", () => Promise.resolve(false), 30)).rejects.toThrow("still starting");
    await child.stop();
  });

  it("that are tied to us see their standard input end when we do, however that comes about", async () => {
    const script = `
      const { Child } = await import(${JSON.stringify(pathToFileURL(built("js", "tests", "fleet", "processes.js")).href)});
      const child = new Child({ name: "tied", command: "bash", args: ["-c", "echo up; cat >/dev/null"], tied: true, onOutput: () => console.log(child.pid) });
      setInterval(() => 0, 1000);`;
    const parent = new Child({ name: "parent", command: process.execPath, args: ["--input-type=module", "-e", script] });
    await parent.until("the child's pid", () => Promise.resolve(/^\d+$/m.test(parent.output)), 10_000);
    const pid = Number(parent.output.trim());
    expect(lives(pid)).toBe(true);
    parent.killNow();
    await expect.poll(() => lives(pid), { timeout: 5000 }).toBe(false);
  });

  it("that cannot be started say so", async () => {
    const child = new Child({ name: "nothing", command: "/nowhere/at/all", args: [] });
    expect(await child.ended).toContain("ENOENT");
    expect(child.alive).toBe(false);
  });

  // The program as it is built: it has to be another process than this one.
  const program = (rest: string): Child =>
    node(`import(${JSON.stringify(pathToFileURL(built("js", "tests", "fleet", "processes.js")).href)}).then(({ Child, endOnSignals }) => {
      const child = new Child({ name: "grandchild", command: process.execPath, args: ["-e", "setInterval(() => 0, 1000)"] });
      ${rest}
      console.log("pid " + child.pid);
    })`);

  const grandchild = async (parent: Child): Promise<number> => {
    await parent.until("a pid", () => Promise.resolve(/pid \d+\n/.test(parent.output)), 10_000);
    return Number(/pid (\d+)/.exec(parent.output)?.[1]);
  };

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("end with a program that gets %s, and the program says so by its exit code", async (signal) => {
    const parent = program("endOnSignals(() => Promise.resolve());");
    const pid = await grandchild(parent);
    expect(lives(pid)).toBe(true);
    parent.signal(signal);
    expect(await parent.ended).toBe(`exit code ${{ SIGINT: "130", SIGTERM: "143", SIGHUP: "129" }[signal]}`);
    expect(lives(pid)).toBe(false);
  });

  it("end with a program that ends by an error", async () => {
    const parent = program("setTimeout(() => { throw new Error('broken'); }, 50);");
    const pid = await grandchild(parent);
    expect(await parent.ended).toBe("exit code 1");
    for (let waited = 0; lives(pid) && waited < 2000; waited += 10) await new Promise((done) => setTimeout(done, 10));
    expect(lives(pid)).toBe(false);
  });

  it("write notes on file descriptor 3, line by line", async () => {
    const notes: string[] = [];
    const child = new Child({ name: "a child", command: process.execPath, args: ["-e", 'require("fs").writeSync(3, "one\\ntwo\\n")'], onNote: (line) => notes.push(line) });
    await child.ended;
    expect(notes).toEqual(["one", "two"]);
  });
});

describe("ports", () => {
  it("are free, each given once, and can be seen as taken", async () => {
    const ports = await Promise.all(Array.from({ length: 20 }, () => freePort()));
    expect(new Set(ports).size).toBe(20);
    const listener = await CountingListener.start();
    expect(await portTaken("127.0.0.1", listener.port)).toBe(true);
    expect(await portTaken("127.0.0.1", ports[0] ?? 0)).toBe(false);
    await listener.close();
    expect(typeof (await hasIpv6())).toBe("boolean");
  });

  it("that nobody should reach count who does", async () => {
    const listener = await CountingListener.start();
    expect(listener.connections).toBe(0);
    await send({ host: listener.host, port: listener.port, method: "GET", path: "/" });
    await send({ host: listener.host, port: listener.port, method: "GET", path: "/" });
    expect(listener.connections).toBe(2);
    await listener.close();
  });
});

describe("what Envoy writes", () => {
  it("is read line by line while it grows", () => {
    const folder = mkdtempSync(join(tmpdir(), "log-"));
    const path = join(folder, "access.log");
    const log = new AccessLog(path);
    expect(log.lines()).toEqual([]);
    writeFileSync(path, '{"request_id":"a","status":200,"upstream":"127.0.0.1:1","decision":null}\n{"request_id":"b"');
    expect(log.lines().map((line) => line.requestId)).toEqual(["a"]);
    appendFileSync(path, ',"status":503,"flags":"UH"}\n');
    expect(log.lines().map((line) => [line.requestId, line.status, line.flags, line.upstream])).toEqual([
      ["a", 200, "", "127.0.0.1:1"],
      ["b", 503, "UH", null],
    ]);
    rmSync(folder, { recursive: true });
  });

  it("counters are read by name, histograms left out", () => {
    const stats = readStats("a.b: 1\na.c: 2\nd: P50(1)\ntext: \"x\"\n");
    expect([...stats]).toEqual([
      ["a.b", 1],
      ["a.c", 2],
    ]);
    expect(sumOf(stats, /^a\./)).toBe(3);
    expect(sumOf(stats, /^z/)).toBeNull();
  });

  it("Prometheus samples are read with their labels", () => {
    expect(readPrometheus('# HELP x y\nx{a="1",b="q\\"\\n"} 2\ny 3.5 1700000000\nbroken\n')).toEqual([
      { name: "x", labels: { a: "1", b: 'q"\n' }, value: 2 },
      { name: "y", labels: {}, value: 3.5 },
    ]);
  });
});

describe("the fleet's EndpointPickerConfig", () => {
  it("has the deciders that are asked for, and a picker of its own for several encoders", () => {
    const both = pickerDocument({ prefill: true, encode: true, encoders: 2 });
    expect(both.plugins.find((plugin) => plugin.type === "disagg-profile-handler")?.parameters).toMatchObject({ deciders: { prefill: "prefix-based-pd-decider", encode: "always-disagg-multimodal-decider" } });
    expect(both.plugins.find((plugin) => plugin.name === "encode-picker")?.parameters).toEqual({ maxNumOfEndpoints: 2 });
    const none = pickerDocument({ prefill: false, encode: false });
    expect(none.plugins.find((plugin) => plugin.type === "disagg-profile-handler")?.parameters).toMatchObject({ deciders: {} });
    expect(none.schedulingProfiles.map((profile) => profile.name)).toEqual(["encode", "prefill", "decode"]);
  });
});
