import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { until } from "./testkit/upstream.js";
import { type FolderWatch, watchFolder } from "./watch-folder.js";

describe("watchFolder", () => {
  let folder: string;
  let watched: FolderWatch | null = null;
  let calls = 0;
  const onChange = (): void => {
    calls += 1;
  };

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "sidecar-watch-"));
    calls = 0;
  });
  afterEach(() => {
    watched?.close();
    watched = null;
    rmSync(folder, { recursive: true, force: true });
  });

  it("tells once of several writes, after the last of them", async () => {
    watched = watchFolder(folder, onChange, { debounceMs: 60 });
    writeFileSync(join(folder, "a"), "1");
    writeFileSync(join(folder, "b"), "2");
    expect(calls).toBe(0);
    await until(() => calls > 0);
    await sleep(150);
    expect(calls).toBe(1);
  });

  it("tells of a swapped link, as a mounted Secret is updated", async () => {
    const version = (name: string, text: string): void => {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, "tls.crt"), text);
      symlinkSync(name, join(folder, "..data_tmp"));
      renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
    };
    version("..v1", "1");
    symlinkSync(join("..data", "tls.crt"), join(folder, "tls.crt"));
    watched = watchFolder(folder, onChange, { debounceMs: 20 });
    await sleep(100);
    calls = 0;
    version("..v2", "2");
    await until(() => calls > 0);
  });

  it("looks by itself too, where the folder is away or nothing tells of a change", async () => {
    rmSync(folder, { recursive: true });
    watched = watchFolder(folder, onChange, { debounceMs: 10, pollMs: 40 });
    await until(() => calls >= 2);
    mkdirSync(folder);
    await sleep(100);
    watched.close();
    watched = watchFolder(folder, onChange, { debounceMs: 10 });
    calls = 0;
    writeFileSync(join(folder, "a"), "1");
    await until(() => calls > 0);
  });

  it("is silent once it is closed", async () => {
    watched = watchFolder(folder, onChange, { debounceMs: 20, pollMs: 30 });
    writeFileSync(join(folder, "a"), "1");
    watched.close();
    await sleep(120);
    expect(calls).toBe(0);
  });
});
