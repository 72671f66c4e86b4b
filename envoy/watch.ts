import { statSync } from "node:fs";

const POLL_MS = 500;
const DEBOUNCE_MS = 300;

/** What tells one content of a file from another, for each of the paths; links are followed. */
export function stampsOf(files: readonly string[]): string[] {
  return files.map((file) => {
    const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? "" : [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join(" ");
  });
}

/**
 * Calls back when one of the files has changed, once for a burst of changes. It asks the file system for each path twice a second instead of listening for events: a path stays
 * watched when its file is replaced, when it is gone for a while, and when a Kubernetes ConfigMap swaps the `..data` link under it, on any file system.
 *
 * @param seen the stamps from before the files were last read: a change since then counts
 * @param onChange not called again while the promise of the call before is open; changes meanwhile lead to one more call
 * @returns ends the watching
 */
export function watchFiles(files: readonly string[], onChange: () => Promise<void>, seen: readonly string[] = stampsOf(files)): () => void {
  let timer: NodeJS.Timeout | null = null;
  let running = false;
  let again = false;
  let ended = false;
  const run = (): void => {
    timer = null;
    if (ended) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    void onChange().finally(() => {
      running = false;
      if (again) {
        again = false;
        run();
      }
    });
  };
  const changed = (): void => {
    if (timer !== null) clearTimeout(timer);
    timer = setTimeout(run, DEBOUNCE_MS);
  };
  let last = seen.join("\n");
  const poll = setInterval(() => {
    const now = stampsOf(files).join("\n");
    if (now !== last) changed();
    last = now;
  }, POLL_MS);
  return () => {
    ended = true;
    if (timer !== null) clearTimeout(timer);
    clearInterval(poll);
  };
}
