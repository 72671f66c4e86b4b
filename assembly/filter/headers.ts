// Request headers that plugins go by, and what they have the answer carry. Read only where a configured plugin asks for them.
import { WantedHeader } from "../config/build";
import { Objective } from "../config/options";
import { idHash } from "../endpoints";
import { Bytes, getHeader, HeaderMap, valueAt, valueSize } from "../host";
import { RequestFacts } from "../scheduling/request";

/** A wanted header with its names as bytes. */
export class HeaderSource {
  private readonly name: Bytes;
  private readonly cookie: Bytes;

  constructor(wanted: WantedHeader) {
    this.name = new Bytes(wanted.name);
    this.cookie = new Bytes(wanted.cookie);
  }

  /** Hash of the value, white space around it left out; 0 when there is none. */
  read(): u64 {
    if (!getHeader(HeaderMap.Request, this.name)) return 0;
    let at = valueAt;
    let end = at + valueSize;
    const cookie = this.cookie;
    if (cookie.size) {
      // `a=1; b=2`: the first of that name.
      while (true) {
        while (at < end && (load<u8>(at) == 0x20 || load<u8>(at) == 0x3b)) at++;
        if (at >= end) return 0;
        let next = at;
        while (next < end && load<u8>(next) != 0x3b) next++;
        if (<u32>(next - at) > cookie.size && load<u8>(at + cookie.size) == 0x3d && memory.compare(at, cookie.at, cookie.size) == 0) {
          at += cookie.size + 1;
          end = next;
          break;
        }
        at = next;
      }
    }
    while (at < end && load<u8>(at) <= 0x20) at++;
    while (at < end && load<u8>(end - 1) <= 0x20) end--;
    return at < end ? idHash(at, <u32>(end - at)) : 0;
  }
}

export function readHeaders(sources: HeaderSource[], facts: RequestFacts): void {
  for (let i = 0; i < sources.length; i++) facts.headers[i] = sources[i].read();
}

/** The new name wins where both are sent (scheduler §1.5). */
const OBJECTIVE = new Bytes("x-llm-d-inference-objective");
const OLD_OBJECTIVE = new Bytes("x-gateway-inference-objective");

/** Priority of the request's objective; 0 without one, and for a name that is not configured. Costs nothing where no objective is. */
export function priorityOf(objectives: Objective[]): i32 {
  if (!objectives.length || !(getHeader(HeaderMap.Request, OBJECTIVE) || getHeader(HeaderMap.Request, OLD_OBJECTIVE))) return 0;
  const name = String.UTF8.decodeUnsafe(valueAt, valueSize);
  for (let i = 0; i < objectives.length; i++) if (objectives[i].name == name) return objectives[i].priority;
  return 0;
}
