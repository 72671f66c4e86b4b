/** Waiting that ends when the request does. */

import { setImmediate as nextTurn } from "node:timers/promises";

/** @throws the signal's reason */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason as Error);
      return;
    }
    if (ms <= 0) {
      resolve();
      return;
    }
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Lets other work, and what the sockets have to say, come in between. @throws the signal's reason */
export async function breathe(signal: AbortSignal): Promise<void> {
  await nextTurn();
  if (signal.aborted) throw signal.reason as Error;
}

/** Ends only with the signal. @throws its reason */
export function forever(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) {
      reject(signal.reason as Error);
      return;
    }
    signal.addEventListener("abort", () => {
      reject(signal.reason as Error);
    }, { once: true });
  });
}
