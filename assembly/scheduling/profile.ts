// A scheduling profile: filters in order, weighted scorers, one picker (scheduler §2).
import { EndpointTable } from "../endpoints/table";
import { Pass, Picks } from "./pass";
import { keepMarked, Plugin, PluginKind } from "./plugin";

export class Profile {
  private readonly filters: Array<Plugin> = [];
  private readonly scorers: Array<Plugin> = [];
  private readonly weights: Array<f64> = [];
  private picker: Plugin | null = null;
  /** How many leading filters depend on labels only; they are evaluated once, in {@link base}. */
  private leading: i32 = 0;
  /** Endpoints that pass the leading filters, in table order. */
  private base: StaticArray<i32> = new StaticArray<i32>(0);

  constructor(public readonly name: string) {}

  /** Adds an instance for everything that it is here. Returns the picker that is already there when this is a second one, null otherwise. */
  add(plugin: Plugin, weight: f64): Plugin | null {
    if (plugin.is(PluginKind.Scorer)) {
      this.scorers.push(plugin);
      this.weights.push(weight);
    }
    if (plugin.is(PluginKind.Filter)) this.filters.push(plugin);
    if (plugin.is(PluginKind.Picker)) {
      const other = this.picker;
      if (other !== null) return other;
      this.picker = plugin;
    }
    return null;
  }

  get hasPicker(): bool {
    return this.picker !== null;
  }

  /** What the profile runs, as `filters | scorer*weight … | picker`, for tests and logs. */
  describe(): string {
    let out = "";
    for (let i = 0; i < this.filters.length; i++) out += this.filters[i].name + " ";
    out += "|";
    for (let i = 0; i < this.scorers.length; i++) out += " " + this.scorers[i].name + "*" + this.weights[i].toString();
    const picker = this.picker;
    return out + " | " + (picker === null ? "" : picker.name);
  }

  /** Binds the profile to its endpoints. Its plugins are prepared already. */
  prepare(table: EndpointTable): void {
    this.leading = 0;
    while (this.leading < this.filters.length && this.filters[this.leading].labelBitmap() !== null) this.leading++;
    this.base = indices(this.passes(table, this.leading));
  }

  /** 1 for each endpoint that passes every label filter of the profile, wherever it stands among the filters. */
  capable(table: EndpointTable): StaticArray<u8> {
    return this.passes(table, this.filters.length);
  }

  private passes(table: EndpointTable, filters: i32): StaticArray<u8> {
    const out = new StaticArray<u8>(table.count);
    for (let i = 0; i < table.count; i++) {
      let pass: u8 = 1;
      for (let f = 0; f < filters; f++) {
        const bitmap = this.filters[f].labelBitmap();
        if (bitmap !== null) pass &= bitmap[i];
      }
      out[i] = pass;
    }
    return out;
  }

  /**
   * Fills `pass.candidates` with what the filters leave. Unusable endpoints are left out unless no other candidate is left. Returns false when nothing is left.
   * Endpoints marked in `pass.excluded` are never candidates.
   */
  filter(pass: Pass): bool {
    const unusable = this.fill(pass, true);
    if (this.runFilters(pass)) return true;
    if (unusable == 0) return false;
    this.fill(pass, false);
    return this.runFilters(pass);
  }

  /** Runs the whole profile. False, with `picks` empty, when the filters drained the candidates. */
  run(pass: Pass, picks: Picks): bool {
    picks.count = 0;
    if (!this.filter(pass)) return false;
    this.score(pass);
    this.pick(pass, picks);
    return true;
  }

  /** The last step of {@link run}: there is at least one candidate, and all have their totals. */
  pick(pass: Pass, picks: Picks): void {
    const picker = this.picker;
    if (picker !== null) picker.pick(pass, picks);
  }

  /** Candidates from the base. Returns how many were left out for being unusable. */
  private fill(pass: Pass, usableOnly: bool): i32 {
    const base = this.base;
    const usable = pass.table.usable;
    const excluded = pass.excluded;
    const subset = pass.facts.subset;
    const candidates = pass.candidates;
    let count = 0;
    let unusable = 0;
    for (let i = 0, n = base.length; i < n; i++) {
      const endpoint = unchecked(base[i]);
      if (unchecked(excluded[endpoint])) continue;
      if (subset && !unchecked(subset[endpoint])) continue;
      if (usableOnly && !unchecked(usable[endpoint])) {
        unusable++;
        continue;
      }
      unchecked((candidates[count++] = endpoint));
    }
    pass.count = count;
    return unusable;
  }

  private runFilters(pass: Pass): bool {
    for (let f = this.leading; f < this.filters.length && pass.count > 0; f++) {
      const filter = unchecked(this.filters[f]);
      const bitmap = filter.labelBitmap();
      if (bitmap !== null) keepMarked(pass, bitmap);
      else filter.keep(pass);
    }
    return pass.count > 0;
  }

  /** Fills `pass.total` for the candidates. */
  score(pass: Pass): void {
    const n = pass.count;
    const raw = pass.raw;
    const total = pass.total;
    for (let i = 0; i < n; i++) unchecked((total[i] = 0));
    for (let s = 0; s < this.scorers.length; s++) {
      const weight = unchecked(this.weights[s]);
      unchecked(this.scorers[s]).score(pass);
      for (let i = 0; i < n; i++) {
        const value = unchecked(raw[i]);
        // NaN fails every comparison and ends as 0 (scheduler SC-10).
        unchecked((total[i] += value > 0 ? weight * (value < 1 ? value : 1) : 0));
      }
    }
  }
}

function indices(bitmap: StaticArray<u8>): StaticArray<i32> {
  let count = 0;
  for (let i = 0; i < bitmap.length; i++) count += bitmap[i];
  const out = new StaticArray<i32>(count);
  for (let i = 0, k = 0; i < bitmap.length; i++) if (bitmap[i]) out[k++] = i;
  return out;
}
