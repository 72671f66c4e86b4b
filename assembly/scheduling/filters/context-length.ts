// `context-length-aware` (scheduler §2.1, §2.2): a scorer, and with `enableFiltering` a filter, by the range of prompt lengths in an endpoint's label.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const DEFAULT_LABEL: string = "llm-d.ai/context-length-range";

const enum Range {
  /** The label is not there: any length will do. */
  None,
  Given,
  /** The label cannot be read. */
  Broken,
}

export class ContextLengthAware extends Plugin {
  private ranges: StaticArray<u8> = new StaticArray<u8>(0);
  private minima: StaticArray<f64> = new StaticArray<f64>(0);
  private maxima: StaticArray<f64> = new StaticArray<f64>(0);

  constructor(
    private readonly label: string,
    private readonly enableFiltering: bool,
  ) {
    super(PluginKind.Filter | PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["label", "enableFiltering"]);
    const labelNode = parameters.get("label");
    const label = labelNode.text(DEFAULT_LABEL);
    if (label.length == 0) labelNode.error("must not be empty");
    return new ContextLengthAware(label, parameters.boolOf("enableFiltering", false));
  }

  prepare(table: EndpointTable): void {
    this.ranges = new StaticArray<u8>(table.count);
    this.minima = new StaticArray<f64>(table.count);
    this.maxima = new StaticArray<f64>(table.count);
    for (let i = 0; i < table.count; i++) {
      if (!table.labels[i].has(this.label)) continue;
      this.ranges[i] = <u8>(this.readRange(i, table.labels[i].get(this.label)) ? Range.Given : Range.Broken);
    }
  }

  /** `min-max`, two whole numbers with min <= max. */
  private readRange(endpoint: i32, text: string): bool {
    const bounds = text.split("-");
    if (bounds.length != 2) return false;
    const min = wholeNumber(bounds[0].trim());
    const max = wholeNumber(bounds[1].trim());
    if (min < 0 || max < min) return false;
    this.minima[endpoint] = min;
    this.maxima[endpoint] = max;
    return true;
  }

  keep(pass: Pass): void {
    if (!this.enableFiltering) return;
    const tokens = <f64>pass.facts.tokens;
    const candidates = pass.candidates;
    let kept = 0;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      const range = unchecked(this.ranges[endpoint]);
      const inside = range == Range.Given && tokens >= unchecked(this.minima[endpoint]) && tokens <= unchecked(this.maxima[endpoint]);
      if (inside || range == Range.None) unchecked((candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }

  score(pass: Pass): void {
    const tokens = <f64>pass.facts.tokens;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      const range = unchecked(this.ranges[endpoint]);
      let score = 0.5;
      if (range == Range.Given) score = rangeScore(tokens, unchecked(this.minima[endpoint]), unchecked(this.maxima[endpoint]));
      else if (range == Range.Broken) score = 0;
      unchecked((pass.raw[i] = score));
    }
  }
}

/** Inside the range 0.3 to 1, tighter ranges and more room above first; outside it below 0.3, the closer the better. */
function rangeScore(tokens: f64, min: f64, max: f64): f64 {
  if (tokens > max) return 0.3 / (1 + (tokens - max) / 1000);
  if (tokens < min) return 0.3 / (1 + (min - tokens) / 1000);
  const width = max - min;
  if (width == 0) return 1;
  return 0.3 + 0.7 * (0.7 / (1 + width / 10000) + (0.3 * (max - tokens)) / width);
}

/** The number written with 1 to 15 digits, -1 for anything else. */
function wholeNumber(text: string): f64 {
  if (text.length == 0 || text.length > 15) return -1;
  let value = 0.0;
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + <f64>digit;
  }
  return value;
}
