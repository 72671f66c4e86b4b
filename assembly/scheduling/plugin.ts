// What all plugins have in common. A plugin is made once per configuration push by its own file's `read`, bound to the endpoints with `prepare`, and then runs
// on every request without allocating. One instance may be several things at once (scheduler §2): its kinds say what.
import { EndpointTable } from "../endpoints/table";
import { Pass, Picks } from "./pass";

export const enum PluginKind {
  Filter = 1,
  Scorer = 2,
  Picker = 4,
  ProfileHandler = 8,
  PrefillDecider = 16,
  EncodeDecider = 32,
  Producer = 64,
  SaturationDetector = 128,
  Admitter = 256,
  DataSource = 512,
  Extractor = 1024,
  Parser = 2048,
  Discovery = 4096,
  PreRequest = 8192,
}

export class Plugin {
  /** The instance's name, which references use. */
  name: string = "";
  /** The type as it stands in the configuration, aliases included. */
  type: string = "";
  /** Where the instance stands in the configuration, for messages; "" when it was injected. */
  path: string = "";

  constructor(
    /** {@link PluginKind} bits. */
    public readonly kinds: u32,
  ) {}

  is(kind: PluginKind): bool {
    return (this.kinds & kind) != 0;
  }

  /** Binds the plugin to the endpoints of this push: everything that depends on names and labels only is computed here. */
  prepare(table: EndpointTable): void {}

  /** Bitmap of a filter that depends on labels only, so that a request costs one byte per endpoint; null for any other plugin. Valid after {@link prepare}. */
  labelBitmap(): StaticArray<u8> | null {
    return null;
  }

  /** Filter: leaves in `pass.candidates` those that pass, in their order. */
  keep(pass: Pass): void {}

  /** Scorer: writes `pass.raw` for every candidate. Values outside [0, 1] are clamped by the profile. */
  score(pass: Pass): void {}

  /** Picker: fills `picks` from the candidates, best first. There is at least one candidate. */
  pick(pass: Pass, picks: Picks): void {}

  /** Before a request is scheduled: looks up what the plugin keeps of it. For kinds with {@link PluginKind.PreRequest}, as {@link record}. */
  produce(pass: Pass): void {}

  /** The decision stands: notes what later requests must know of it. */
  record(pass: Pass, decode: Picks, prefill: Picks, encode: Picks): void {}

  /** Saturation detector: load of the fleet, 1 and above is saturated (scheduler §2.8). */
  saturation(table: EndpointTable): f64 {
    return 0;
  }

  /** Admitter: false refuses the request. */
  admits(pass: Pass): bool {
    return true;
  }
}

/** Drops the candidates whose endpoint has 0 in `bitmap`. */
export function keepMarked(pass: Pass, bitmap: StaticArray<u8>): void {
  const candidates = pass.candidates;
  let kept = 0;
  for (let i = 0, n = pass.count; i < n; i++) {
    const endpoint = unchecked(candidates[i]);
    if (unchecked(bitmap[endpoint])) unchecked((candidates[kept++] = endpoint));
  }
  pass.count = kept;
}
