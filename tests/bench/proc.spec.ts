import { describe, expect, it } from "vitest";
import { machineBusyMs, processCpuMs, readBusy, readResident, readSchedstat, readStat, residentBytes } from "./proc.js";

describe("readStat", () => {
  const rest = "S 1 2 3 0 -1 4194560 17 0 1 0 123 45 0 0 20 0 5 0 100 200 300";
  it("reads user and system time", () => {
    expect(readStat(`4711 (envoy) ${rest}`)).toEqual({ user: 123, system: 45 });
  });
  it("is not led astray by a name with blanks and parentheses", () => {
    expect(readStat(`4711 (a) b (c) ) ${rest}`)).toEqual({ user: 123, system: 45 });
  });
  it("refuses anything else", () => {
    expect(() => readStat("")).toThrow("/proc/PID/stat");
    expect(() => readStat("4711 (envoy) S 1 2")).toThrow("/proc/PID/stat");
  });
});

describe("readSchedstat", () => {
  it("reads the time on a CPU", () => {
    expect(readSchedstat("1234567890 98765 42\n")).toBe(1_234_567_890);
  });
  it("knows when there is none", () => {
    expect(readSchedstat("")).toBeNull();
    expect(readSchedstat("0 0")).toBeNull();
  });
});

describe("readResident", () => {
  it("reads kibibytes", () => {
    expect(readResident("Name:\tnode\nVmHWM:\t  70000 kB\nVmRSS:\t   65536 kB\nThreads:\t11\n")).toBe(64 * 1024 * 1024);
  });
  it("knows when there is none", () => {
    expect(readResident("Name:\tkthreadd\n")).toBeNull();
  });
});

describe("readBusy", () => {
  it("adds up all but idle and iowait", () => {
    expect(readBusy("cpu  100 20 30 9999 8888 4 5 6 70 80\ncpu0 1 1 1 1 1 1 1 1 1 1\n")).toBe(165);
  });
  it("refuses anything else", () => {
    expect(() => readBusy("intr 1 2 3")).toThrow("/proc/stat");
  });
});

describe.runIf(process.platform === "linux")("this process", () => {
  it("spends CPU time, and the machine at least as much", () => {
    const own = processCpuMs(process.pid);
    const all = machineBusyMs();
    const until = performance.now() + 60;
    while (performance.now() < until);
    expect(processCpuMs(process.pid) - own).toBeGreaterThan(5);
    // The machine's time comes in ticks of 10 ms.
    expect(machineBusyMs() - all).toBeGreaterThan(0);
  });
  it("has memory", () => {
    expect(residentBytes(process.pid)).toBeGreaterThan(10 * 1024 * 1024);
  });
});
