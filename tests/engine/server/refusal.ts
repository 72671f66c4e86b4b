/**
 * Scripted refusals (`tcp: refused`). The port really is closed, so that a client gets what a stopped process gives; and because no process sees who
 * knocks at a closed port, attempts are read off the kernel's count of failed connects (Linux: `AttemptFails` in /proc/net/snmp). That count is the
 * machine's: a refused connect to any port counts. Where it cannot be read an entry that is not the last one lasts for a fixed time.
 */

import { readFileSync } from "node:fs";

const SNMP = "/proc/net/snmp";
const POLL_MS = 2;
const WITHOUT_COUNTER_MS = 250;

/** Failed connects on this machine so far, null where the kernel does not tell. */
export function failedConnects(): number | null {
  let text: string;
  try {
    text = readFileSync(SNMP, "utf8");
  } catch {
    return null;
  }
  const [names, values] = text.split("\n").filter((line) => line.startsWith("Tcp:")).map((line) => line.split(" "));
  const at = names?.indexOf("AttemptFails") ?? -1;
  const value = at < 0 ? Number.NaN : Number(values?.[at]);
  return Number.isFinite(value) ? value : null;
}

interface Watch {
  readonly timer: NodeJS.Timeout;
  readonly listeners: Set<() => void>;
}

const watches = new WeakMap<object, Watch>();

/**
 * Tells one of those who watch the same key (a script queue that several engines share) of each refused connection, until the returned function is called.
 */
export function watchRefusals(key: object, onAttempt: () => void): () => void {
  const watch = watches.get(key) ?? newWatch(key);
  watch.listeners.add(onAttempt);
  return () => {
    watch.listeners.delete(onAttempt);
    if (watch.listeners.size > 0) return;
    clearInterval(watch.timer);
    watches.delete(key);
  };
}

function newWatch(key: object): Watch {
  let last = failedConnects();
  const listeners = new Set<() => void>();
  const poll = (): void => {
    const now = failedConnects();
    if (now !== null && now === last) return;
    // `localhost` is tried over both families in one go: what falls into one poll is one attempt.
    last = now;
    const [first] = listeners;
    first?.();
  };
  const timer = setInterval(poll, last === null ? WITHOUT_COUNTER_MS : POLL_MS);
  timer.unref();
  const watch = { timer, listeners };
  watches.set(key, watch);
  return watch;
}
