/** CPU time and memory of processes, from Linux's /proc. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

/** Ticks per second of the times in /proc/PID/stat; Linux has 100 on every machine that is sold, and says so itself. */
let ticksPerSecond: number | null = null;
function tickMs(): number {
  ticksPerSecond ??= Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }).trim());
  return 1000 / ticksPerSecond;
}

/**
 * User and system time in ticks from the text of /proc/PID/stat. The program's name stands in parentheses and may hold blanks and parentheses itself, so that fields are
 * counted from the last one. Throws an Error when the text is no such line.
 */
export function readStat(text: string): { user: number; system: number } {
  // Behind the name: state is field 3, utime 14, stime 15 (proc_pid_stat(5)).
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const user = Number(fields[11]);
  const system = Number(fields[12]);
  if (!text.includes(")") || !Number.isInteger(user) || !Number.isInteger(system)) throw new Error(`not a line of /proc/PID/stat: ${text.slice(0, 80)}`);
  return { user, system };
}

/** Nanoseconds on a CPU from the text of /proc/PID/task/TID/schedstat; null when the kernel does not count them. */
export function readSchedstat(text: string): number | null {
  const match = /^(\d+) \d+ \d+\s*$/.exec(text);
  return match === null ? null : Number(match[1]);
}

/** Bytes of resident memory from the text of /proc/PID/status; null when it does not say. */
export function readResident(text: string): number | null {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(text);
  return match === null ? null : Number(match[1]) * 1024;
}

/**
 * Time that all CPUs of the machine have been at work, in ticks, from the text of /proc/stat: everything but idle and waiting for disks. Guests' time is within user's.
 * Throws an Error when the text has no line for all CPUs.
 */
export function readBusy(text: string): number {
  const match = /^cpu\s+(\d+) (\d+) (\d+) \d+ \d+ (\d+) (\d+) (\d+)/m.exec(text);
  if (match === null) throw new Error("/proc/stat has no line for all CPUs");
  return match.slice(1).reduce((sum, field) => sum + Number(field), 0);
}

/**
 * CPU time of a process in ms, all its threads, since it began: to the microsecond where the kernel counts so (schedstat), else in ticks of 10 ms. Threads that have
 * ended count only in the second form, so a process should have all of its threads before it is measured.
 */
export function processCpuMs(pid: number): number {
  const folder = `/proc/${pid.toString()}/task`;
  let nanoseconds = 0;
  for (const thread of readdirSync(folder)) {
    let text: string;
    try {
      text = readFileSync(`${folder}/${thread}/schedstat`, "utf8");
    } catch {
      continue; // ended meanwhile
    }
    const spent = readSchedstat(text);
    if (spent === null) return statCpuMs(pid);
    nanoseconds += spent;
  }
  return nanoseconds / 1e6;
}

function statCpuMs(pid: number): number {
  const { user, system } = readStat(readFileSync(`/proc/${pid.toString()}/stat`, "utf8"));
  return (user + system) * tickMs();
}

/** Throws an Error when the process is gone. */
export function residentBytes(pid: number): number {
  const resident = readResident(readFileSync(`/proc/${pid.toString()}/status`, "utf8"));
  if (resident === null) throw new Error(`process ${pid.toString()} has no memory of its own`);
  return resident;
}

/** CPU time of the whole machine in ms, see {@link readBusy}. */
export function machineBusyMs(): number {
  return readBusy(readFileSync("/proc/stat", "utf8")) * tickMs();
}
