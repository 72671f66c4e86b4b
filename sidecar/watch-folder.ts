import { type FSWatcher, watch } from "node:fs";

/** Files are written one after the other, and a mounted Secret is swapped in several steps: after the first sign of a change that long is waited (sidecar §7). */
const DEBOUNCE_MS = 250;
/** Not every file system tells of changes, and a folder that is replaced is not the one that is watched: it is looked at anew from time to time. */
const POLL_MS = 60_000;

export interface FolderWatch {
  close(): void;
}

/**
 * Calls back when something in a folder may have changed: a file that was written, or a symbolic link that was swapped, as Kubernetes does with `..data`. May call
 * without a change, so the caller compares.
 */
export function watchFolder(folder: string, onChange: () => void, { debounceMs = DEBOUNCE_MS, pollMs = POLL_MS } = {}): FolderWatch {
  let watcher: FSWatcher | null = null;
  let due: NodeJS.Timeout | null = null;
  const stop = (): void => {
    watcher?.close();
    watcher = null;
  };
  const start = (): void => {
    stop();
    try {
      watcher = watch(folder, { persistent: false }, () => {
        due ??= setTimeout(() => {
          due = null;
          onChange();
        }, debounceMs).unref();
      });
      watcher.on("error", stop);
    } catch {
      // It is away; the next look may find it.
    }
  };
  start();
  const poll = setInterval(() => {
    start();
    onChange();
  }, pollMs).unref();
  return {
    close: () => {
      stop();
      clearInterval(poll);
      if (due !== null) clearTimeout(due);
    },
  };
}
