import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, it } from "vitest";
import { stampsOf, watchFiles } from "./watch.js";

let folder: string;
let stop: () => void = () => undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "watch-"));
});
afterEach(() => {
  stop();
  rmSync(folder, { recursive: true, force: true });
});

async function calls(count: () => number, wanted: number): Promise<void> {
  for (let i = 0; i < 100 && count() < wanted; i++) await sleep(50);
}

it("calls once for a burst, again for what comes later, and no more after the end", async () => {
  const [a, b] = [join(folder, "a"), join(folder, "b")];
  writeFileSync(a, "1");
  writeFileSync(b, "1");
  let called = 0;
  stop = watchFiles([a, b], () => {
    called++;
    return Promise.resolve();
  });
  await sleep(700);
  writeFileSync(a, "22");
  writeFileSync(b, "22");
  writeFileSync(`${a}.new`, "333");
  renameSync(`${a}.new`, a);
  await calls(() => called, 1);
  await sleep(1_000);
  // The two files are looked at apart; a burst may be seen as two at most.
  expect(called).toBeGreaterThan(0);
  expect(called).toBeLessThanOrEqual(2);
  const before = called;
  writeFileSync(b, "4444");
  await calls(() => called, before + 1);
  expect(called).toBe(before + 1);
  stop();
  writeFileSync(b, "55555");
  await sleep(1_200);
  expect(called).toBe(before + 1);
});

it("does not call while a call is running, and makes up for it", async () => {
  const file = join(folder, "a");
  writeFileSync(file, "1");
  let running = 0;
  let most = 0;
  let called = 0;
  stop = watchFiles([file], async () => {
    called++;
    most = Math.max(most, ++running);
    await sleep(2_000);
    running--;
  });
  await sleep(700);
  writeFileSync(file, "22");
  await calls(() => called, 1);
  writeFileSync(file, "333");
  await calls(() => called, 2);
  expect(called).toBe(2);
  expect(most).toBe(1);
});

it("sees what was written between the first reading and its own beginning", async () => {
  const a = join(folder, "a");
  writeFileSync(a, "1");
  const seen = stampsOf([a]);
  writeFileSync(a, "2");
  let called = 0;
  stop = watchFiles(
    [a],
    () => {
      called++;
      return Promise.resolve();
    },
    seen,
  );
  await calls(() => called, 1);
  expect(called).toBe(1);
});
