// What the specs of config/, scheduling/ and disagg/ share: documents written short, and answers read short.
import { MultimodalDecider, AlwaysPrefillDecider } from "../../disagg/deciders/always";
import { EncodeDecider, PrefillDecider } from "../../disagg/deciders/decider";
import { Decision } from "../../disagg/decision";
import { Scheduler, SchedulerSetup } from "../../disagg/scheduler";
import { Role } from "../../endpoints/labels";
import { EndpointTable } from "../../endpoints/table";
import { RoleFilter } from "../../scheduling/filters/role";
import { MaxScorePicker } from "../../scheduling/pickers/max-score";
import { Pass, Picks } from "../../scheduling/pass";
import { Plugin, PluginKind } from "../../scheduling/plugin";
import { Profile } from "../../scheduling/profile";
import { RequestFacts } from "../../scheduling/request";
import { LoadedConfig, loadDocument, LoadResult } from "../document";
import { Problem } from "../problems";

/** `[{"name":"e0",…}]`, one endpoint per word: its role, or `-` for an endpoint without the label. Both `llm-d.ai/role` and `role` are set. */
export function endpointsJson(roles: string): string {
  const words = roles.length > 0 ? roles.split(" ") : new Array<string>();
  let out = "[";
  for (let i = 0; i < words.length; i++) {
    if (i > 0) out += ",";
    out += '{"name":"e' + i.toString() + '","address":"10.0.' + ((i + 1) >> 8).toString() + "." + ((i + 1) & 255).toString() + '","port":8000,"labels":{';
    if (words[i] != "-") out += '"llm-d.ai/role":"' + words[i] + '","role":"' + words[i] + '"';
    out += "}}";
  }
  return out + "]";
}

export function documentJson(picker: string, options: string = "null", endpoints: string = "[]"): string {
  return '{"revision":1,"picker":' + picker + ',"options":' + options + ',"endpoints":' + endpoints + "}";
}

export function loadPicker(picker: string, roles: string = "decode", options: string = "null"): LoadResult {
  return loadDocument(documentJson(picker, options, endpointsJson(roles)));
}

/** A configuration that must load; aborts the test with its errors when it does not. */
export function mustLoad(picker: string, roles: string = "decode", options: string = "null"): LoadedConfig {
  const result = loadPicker(picker, roles, options);
  const config = result.config;
  assert(config !== null, problemsText(result.problems.errors));
  return config!;
}

/** `path: message` per line. */
export function problemsText(problems: Array<Problem>): string {
  let out = "";
  for (let i = 0; i < problems.length; i++) out += (i > 0 ? "\n" : "") + problems[i].path + ": " + problems[i].message;
  return out;
}

/** Paths of the problems, joined by spaces. */
export function pathsOf(problems: Array<Problem>): string {
  let out = "";
  for (let i = 0; i < problems.length; i++) out += (i > 0 ? " " : "") + problems[i].path;
  return out;
}

/** "" when the picker document has exactly the one error at `path`, with `fragment` in its message; what it has otherwise. */
export function oneError(picker: string, path: string, fragment: string, options: string = "null"): string {
  const problems = loadPicker(picker, "decode", options).problems.errors;
  if (problems.length == 1 && problems[0].path == path && problems[0].message.includes(fragment)) return "";
  return problems.length == 0 ? "no error" : problemsText(problems);
}

/** The same for one plugin without references. */
export function pluginError(plugin: string, path: string, fragment: string, options: string = "null"): string {
  return oneError('{"plugins":[' + plugin + "]}", path, fragment, options);
}

/** "" when a warning at `path` holds `fragment`. */
export function hasWarning(result: LoadResult, path: string, fragment: string): string {
  const warnings = result.problems.warnings;
  for (let i = 0; i < warnings.length; i++) {
    if (warnings[i].path == path && warnings[i].message.includes(fragment)) return "";
  }
  return problemsText(warnings);
}

/** A table of endpoints with these roles; load known and zero. */
export function table(roles: string): EndpointTable {
  const words = roles.length > 0 ? roles.split(" ") : new Array<string>();
  const out = new EndpointTable(words.length);
  for (let i = 0; i < words.length; i++) {
    out.name[i] = "e" + i.toString();
    out.address[i] = "10.0.0." + (i + 1).toString();
    out.port[i] = 8000;
    out.hostPort[i] = out.address[i] + ":8000";
    if (words[i] != "-") out.labels[i].set("llm-d.ai/role", words[i]);
    out.known[i] = 7;
  }
  return out;
}

/** Facts of a request of so many tokens, in blocks of 16. */
export function tokens(count: i32): RequestFacts {
  const facts = new RequestFacts();
  facts.hasTokens = true;
  facts.tokens = count;
  facts.blockTokens = 16;
  facts.totalBlocks = (count + 15) / 16;
  return facts;
}

/** `tokens` with media items. */
export function media(count: i32, items: i32): RequestFacts {
  const facts = tokens(count);
  facts.mmItems = items;
  facts.mmDistinct = items;
  return facts;
}

/** Writes what an endpoint holds of the prompt. */
export function holds(table: EndpointTable, endpoint: i32, matchedTokens: i32): void {
  table.matchedTokens[endpoint] = matchedTokens;
  table.matchedBlocks[endpoint] = (matchedTokens + 15) / 16;
}

/** A filter that keeps everything and notes how it was called. */
export class Spy extends Plugin {
  runs: i32 = 0;
  peer: i32 = -2;
  seen: Array<i32> = [];

  constructor() {
    super(PluginKind.Filter);
  }

  keep(pass: Pass): void {
    this.runs++;
    this.peer = pass.peer;
    this.seen = [];
    for (let i = 0; i < pass.count; i++) this.seen.push(pass.candidates[i]);
  }
}

/** A stage machine put together by hand: role filters, a spy in each profile, a picker of `n`. */
export class Machine {
  readonly decodeSpy: Spy = new Spy();
  readonly prefillSpy: Spy = new Spy();
  readonly encodeSpy: Spy = new Spy();
  readonly setup: SchedulerSetup;
  private made: Scheduler | null = null;

  constructor(
    public readonly table: EndpointTable,
    prefillDecider: PrefillDecider | null,
    encodeDecider: EncodeDecider | null,
    n: i32 = 1,
  ) {
    this.setup = new SchedulerSetup(new Profile("decode"));
    fill(this.setup.decodeProfile, Role.Decode, this.decodeSpy, table, n);
    const prefill = new Profile("prefill");
    fill(prefill, Role.Prefill, this.prefillSpy, table, n);
    this.setup.prefillProfile = prefill;
    const encode = new Profile("encode");
    fill(encode, Role.Encode, this.encodeSpy, table, n);
    this.setup.encodeProfile = encode;
    this.setup.prefillDecider = prefillDecider;
    this.setup.encodeDecider = encodeDecider;
  }

  get scheduler(): Scheduler {
    let scheduler = this.made;
    if (scheduler === null) {
      scheduler = new Scheduler(this.table, this.setup);
      this.made = scheduler;
    }
    return scheduler;
  }

  decide(facts: RequestFacts): Decision {
    return this.scheduler.decide(facts);
  }
}

function fill(profile: Profile, role: Role, spy: Spy, table: EndpointTable, n: i32): void {
  const filter = new RoleFilter(role);
  filter.prepare(table);
  profile.add(filter, 1);
  profile.add(spy, 1);
  profile.add(new MaxScorePicker(n), 1);
  profile.prepare(table);
}

export function always(): PrefillDecider {
  return new AlwaysPrefillDecider();
}

export function multimodal(): EncodeDecider {
  return new MultimodalDecider();
}

/** The picks as `0 2 1`. */
export function list(picks: Picks): string {
  let out = "";
  for (let i = 0; i < picks.count; i++) out += (i > 0 ? " " : "") + picks.list[i].toString();
  return out;
}
