import { Writer } from "../host";
import { Picks } from "../scheduling/pass";

/**
 * A routing header's value: the picks by their names, joined by commas in their order – the encoders, the prefillers (the sidecar uses the first and goes on to the next
 * when it fails), and the destinations, down which Envoy's retry goes. Nothing for none, which means that the header is removed.
 */
export function writePicks(out: Writer, names: StaticArray<string>, picks: Picks): void {
  out.clear();
  for (let i = 0; i < picks.count; i++) {
    if (i) out.byte(0x2c);
    out.text(unchecked(names[picks.list[i]]));
  }
}
