// What an engine calls its series (scheduler §5.1), ready to be compared with an answer's bytes.

/** One series: `name`, or `name{label=value,...}` where only the series with these labels counts. */
export class SeriesSpec {
  private readonly name: ArrayBuffer;
  /** `label="value"` of each condition. */
  private readonly labels: ArrayBuffer[] = [];

  /** `spec` has been validated; "" is a series that the engine does not have. */
  constructor(spec: string) {
    const open = spec.indexOf("{");
    this.name = String.UTF8.encode(open < 0 ? spec : spec.substring(0, open));
    const pairs: string[] = open < 0 ? [] : spec.substring(open + 1, spec.length - 1).split(",");
    for (let i = 0; i < pairs.length; i++) {
      const equals = pairs[i].indexOf("=");
      let value = pairs[i].substring(equals + 1).trim();
      if (value.length >= 2 && value.startsWith('"') && value.endsWith('"')) value = value.substring(1, value.length - 1);
      this.labels.push(String.UTF8.encode(pairs[i].substring(0, equals).trim() + '="' + value + '"'));
    }
  }

  isNamed(at: usize, size: u32): bool {
    return size > 0 && size == <u32>this.name.byteLength && memory.compare(at, changetype<usize>(this.name), size) == 0;
  }

  /** Whether the label text `{...}` meets every condition. */
  hasLabels(at: usize, size: u32): bool {
    for (let i = 0; i < this.labels.length; i++) {
      if (findLabel(at, size, this.labels[i]) < 0) return false;
    }
    return true;
  }
}

/** Offset behind `text` where it stands at the start of a label in `{a="b",c="d"}`; -1 when it does not. */
export function findLabel(at: usize, size: u32, text: ArrayBuffer): i32 {
  const n = <u32>text.byteLength;
  let quoted = false;
  for (let i: u32 = 0; i + n < size; i++) {
    const c = <u32>load<u8>(at + i);
    if (quoted) {
      if (c == 0x5c) i++;
      else if (c == 0x22) quoted = false;
      continue;
    }
    if (c == 0x22) quoted = true;
    else if ((c == 0x7b || c == 0x2c || c == 0x20) && memory.compare(at + i + 1, changetype<usize>(text), n) == 0) return <i32>(i + 1 + n);
  }
  return -1;
}

export class EngineNames {
  readonly waiting: SeriesSpec;
  readonly running: SeriesSpec;
  readonly kvUsage: SeriesSpec;
  /** A series whose labels tell the cache's size. */
  readonly cacheInfo: SeriesSpec;
  /** `label="` of both. */
  readonly blockTokensLabel: ArrayBuffer;
  readonly blocksLabel: ArrayBuffer;
  /** Series whose values tell it. */
  readonly blockTokens: SeriesSpec;
  readonly blocks: SeriesSpec;
  readonly startTime: SeriesSpec = new SeriesSpec("process_start_time_seconds");
  /** A counter that only a restart takes back. */
  readonly counter: SeriesSpec;
  /** A series whose labels tell of LoRA adapters. */
  readonly lora: SeriesSpec;

  constructor(
    waiting: string,
    running: string,
    kvUsage: string,
    cacheInfo: string,
    blockTokensLabel: string,
    blocksLabel: string,
    blockTokens: string,
    blocks: string,
    counter: string,
    lora: string = "",
  ) {
    this.waiting = new SeriesSpec(waiting);
    this.running = new SeriesSpec(running);
    this.kvUsage = new SeriesSpec(kvUsage);
    this.cacheInfo = new SeriesSpec(cacheInfo);
    this.blockTokensLabel = String.UTF8.encode(blockTokensLabel + '="');
    this.blocksLabel = String.UTF8.encode(blocksLabel + '="');
    this.blockTokens = new SeriesSpec(blockTokens);
    this.blocks = new SeriesSpec(blocks);
    this.counter = new SeriesSpec(counter);
    this.lora = new SeriesSpec(lora);
  }
}
