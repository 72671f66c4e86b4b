// The decision for one request: which profiles run, in which order, and what comes of it (scheduler §3). Made once per configuration push; deciding allocates
// nothing.
import { Fleet } from "../endpoints/fleet";
import { EndpointTable, KNOWN_WAITING } from "../endpoints/table";
import { Pass, PassStage, Picks } from "../scheduling/pass";
import { Plugin } from "../scheduling/plugin";
import { P2pSourceProducer } from "../scheduling/producers/p2p-source";
import { Profile } from "../scheduling/profile";
import { Random } from "../scheduling/random";
import { RequestFacts } from "../scheduling/request";
import { Store } from "../store";
import { EncodeDecider, PrefillDecider } from "./deciders/decider";
import { Decision, Outcome, Stage } from "./decision";
import { planItems, preferIdle } from "./encode";
import { destinationsOf } from "./headers";
import { DecodeReason, EncodeReason, neverSplitReason, PrefillReason, wantsPrefill } from "./reasons";

/** What a configuration comes down to for the scheduler. */
export class SchedulerSetup {
  prefillProfile: Profile | null = null;
  encodeProfile: Profile | null = null;
  prefillDecider: PrefillDecider | null = null;
  encodeDecider: EncodeDecider | null = null;
  prefillFirst: bool = false;
  primaryPort: i32 = 0;
  /** FilterOptions.onMissingStage is `fail`. */
  failOnMissingStage: bool = false;
  saturationDetector: Plugin | null = null;
  admitters: Array<Plugin> = [];
  p2pSource: P2pSourceProducer | null = null;
  /** 1 for endpoints that may be a KV source; null: all. */
  kvSources: StaticArray<u8> | null = null;
  /** Plugins that look something up before a request is scheduled, and note something after. */
  stateful: Array<Plugin> = [];
  /** Per endpoint a number; prefill and decode of a request have the same one (FilterOptions.revisionLabel). Null: no matter. */
  revisions: StaticArray<i32> | null = null;

  constructor(public readonly decodeProfile: Profile) {}
}

export class Scheduler {
  readonly random: Random;
  /** 1 for endpoints that may decode: they pass the label filters of the primary profile. Only these belong in Envoy's decode cluster. */
  readonly decodeCapable: StaticArray<u8>;
  /** The same for the other two stages; all 0 where the stage has no profile. */
  readonly prefillCapable: StaticArray<u8>;
  readonly encodeCapable: StaticArray<u8>;
  /** Port that replaces the decode endpoint's own, 0 for none (scheduler §3.7). */
  readonly primaryPort: i32;
  /** See `destinationsOf`. */
  readonly destinations: StaticArray<string>;

  private readonly pass: Pass;
  private readonly decision: Decision;
  private readonly kvSources: StaticArray<u8>;

  /** The profiles and plugins of `setup` are bound to `table` already. */
  constructor(
    public readonly table: EndpointTable,
    private readonly setup: SchedulerSetup,
  ) {
    const random = new Random();
    this.random = random;
    this.pass = new Pass(table, random);
    this.decision = new Decision(table.count);
    this.primaryPort = setup.primaryPort;
    this.destinations = destinationsOf(table, setup.primaryPort);
    this.decodeCapable = capable(setup.decodeProfile, table);
    this.prefillCapable = capable(setup.prefillProfile, table);
    this.encodeCapable = capable(setup.encodeProfile, table);
    const sources = setup.kvSources;
    this.kvSources = sources === null ? new StaticArray<u8>(table.count).fill(1) : sources;
  }

  /** Where plugins keep what outlives a request, and the endpoints' ids of now; again whenever ids change. */
  use(store: Store, fleet: Fleet): void {
    this.pass.store = store;
    this.pass.fleet = fleet;
  }

  /** The host seeds the random tie-breaks: once per VM, with something that differs between VMs. */
  seed(seed: u64): void {
    this.random.seed(seed);
  }

  /**
   * Decides a request whose body was read. `table`'s dynamic half is of this moment. The result is valid until the next call.
   */
  decide(facts: RequestFacts): Decision {
    const decision = this.begin(facts);
    if (decision.outcome != Outcome.Ok) return decision;
    const stateful = this.setup.stateful;
    for (let i = 0; i < stateful.length; i++) stateful[i].produce(this.pass);
    if (!this.admit(facts)) {
      decision.outcome = Outcome.Saturated;
      return decision;
    }
    if (this.setup.prefillFirst) this.prefillFirst(facts);
    else this.decodeFirst(facts);
    if (decision.outcome == Outcome.Ok) this.finish(facts);
    if (decision.outcome == Outcome.Ok) {
      for (let i = 0; i < stateful.length; i++) stateful[i].record(this.pass, decision.decode, decision.prefill, decision.encode);
    }
    return decision;
  }

  /**
   * Decides a request of which nothing is known but that it must go to an endpoint that decodes: no body, an unknown path, a body that cannot be read. Takes the
   * least loaded one; `reason` says which case it was.
   */
  decideByLoad(facts: RequestFacts, reason: DecodeReason): Decision {
    const decision = this.begin(facts);
    if (decision.outcome != Outcome.Ok) return decision;
    const pass = this.pass;
    // Without a body there is nothing to shed: the reference does not look at such a request's objective either (scheduler §6.1, 1).
    if (reason != DecodeReason.NoBody && !this.admit(facts)) {
      decision.outcome = Outcome.Saturated;
      return decision;
    }
    if (this.pin(facts)) {
      decision.decodeReason = reason;
      return decision;
    }
    if (!this.setup.decodeProfile.filter(pass)) {
      decision.outcome = Outcome.NoDecodeEndpoint;
      decision.decodeReason = DecodeReason.NoDecodeEndpoint;
      return decision;
    }
    decision.decode.list[0] = leastLoaded(pass);
    decision.decode.count = 1;
    decision.decodeReason = reason;
    return decision;
  }

  private begin(facts: RequestFacts): Decision {
    const decision = this.decision;
    decision.reset();
    this.pass.facts = facts;
    this.pass.peer = -1;
    this.pass.stage = PassStage.Decode;
    const subset = facts.subset;
    if (this.table.count == 0 || (subset !== null && !subset.includes(1))) {
      decision.outcome = Outcome.NoCandidates;
      decision.decodeReason = DecodeReason.NoCandidates;
    }
    return decision;
  }

  /** Only requests of negative priority can be refused (scheduler §2.6, §6.1). */
  private admit(facts: RequestFacts): bool {
    if (facts.priority >= 0) return true;
    const detector = this.setup.saturationDetector;
    if (detector !== null && detector.saturation(this.table) >= 1) return false;
    for (let i = 0; i < this.setup.admitters.length; i++) {
      if (!this.setup.admitters[i].admits(this.pass)) return false;
    }
    return true;
  }

  /** Decode, then encode, then prefill (scheduler §3.2). */
  private decodeFirst(facts: RequestFacts): void {
    const decision = this.decision;
    if (!this.runDecode()) return;
    this.runEncode(facts);
    if (decision.outcome != Outcome.Ok) return;
    this.pass.peer = decision.decode.first;

    const profile = this.setup.prefillProfile;
    const decider = this.setup.prefillDecider;
    let reason = neverSplitReason(facts.neverSplit);
    if (profile === null || decider === null || !facts.splits) {
      decision.prefillReason = PrefillReason.SkipNoDecider;
      return;
    }
    if (reason == PrefillReason.None) reason = decider.prefill(facts, this.table, decision.decode.first);
    decision.prefillReason = reason;
    if (!wantsPrefill(reason)) return;
    this.pass.stage = PassStage.Prefill;
    this.pair(decision.decode.first);
    if (this.runExcluding(profile, decision.prefill, decision.decode)) this.keepRevision(decision.decode, decision.prefill.first);
    // Was it only the decode pick that was in the way? Then that pod does both, and there is nothing to split (scheduler L15).
    else if (this.isCandidate(profile, decision.decode)) decision.prefillReason = PrefillReason.SelfEndpoint;
    else this.missing(Stage.Prefill);
    this.pass.includeAll();
  }

  /** From here on only endpoints of `peer`'s revision are candidates. */
  private pair(peer: i32): void {
    const revisions = this.setup.revisions;
    if (revisions === null) return;
    const excluded = this.pass.excluded;
    const own = revisions[peer];
    for (let i = 0; i < excluded.length; i++) unchecked((excluded[i] = unchecked(revisions[i]) == own ? 0 : 2));
  }

  /** What is tried after the first of `picks` must be of `peer`'s revision as well. */
  private keepRevision(picks: Picks, peer: i32): void {
    const revisions = this.setup.revisions;
    if (revisions !== null) picks.keepGroup(revisions, revisions[peer]);
  }

  /** Prefill without a decider, then encode, then decode (scheduler §3.3). */
  private prefillFirst(facts: RequestFacts): void {
    const decision = this.decision;
    const profile = this.setup.prefillProfile;
    const never = neverSplitReason(facts.neverSplit);
    if (profile === null || !facts.splits) decision.prefillReason = PrefillReason.SkipNoDecider;
    else if (never != PrefillReason.None) decision.prefillReason = never;
    else {
      decision.prefillReason = PrefillReason.RunAlways;
      this.pass.stage = PassStage.Prefill;
      if (!profile.run(this.pass, decision.prefill)) {
        this.missing(Stage.Prefill);
        if (decision.outcome != Outcome.Ok) return;
      }
    }
    this.runEncode(facts);
    if (decision.outcome != Outcome.Ok) return;
    const prefill = decision.prefill.first;
    this.pass.peer = prefill;
    this.pass.stage = PassStage.Decode;
    if (prefill < 0) {
      this.runDecode();
      return;
    }
    this.pair(prefill);
    const found = this.runExcluding(this.setup.decodeProfile, decision.decode, decision.prefill);
    this.pass.includeAll();
    if (found) {
      decision.decodeReason = DecodeReason.Picked;
      this.keepRevision(decision.prefill, decision.decode.first);
      return;
    }
    // The only endpoints that could decode are those picked for prefill, or of another revision.
    if (!this.runDecode()) return;
    decision.prefill.count = 0;
    const revisions = this.setup.revisions;
    if (revisions !== null && revisions[decision.decode.first] != revisions[prefill]) this.missing(Stage.Prefill);
    else decision.prefillReason = PrefillReason.SelfEndpoint;
  }

  /** Picks the endpoint that the request must come back to, as long as it is there. */
  private pin(facts: RequestFacts): bool {
    const place = facts.pinned;
    if (place < 0 || !this.decodeCapable[place] || !this.table.usable[place]) return false;
    const subset = facts.subset;
    if (subset !== null && !subset[place]) return false;
    this.decision.decode.list[0] = place;
    this.decision.decode.count = 1;
    return true;
  }

  private runDecode(): bool {
    const decision = this.decision;
    if (this.pin(this.pass.facts)) {
      decision.decodeReason = DecodeReason.Picked;
      return true;
    }
    if (this.setup.decodeProfile.run(this.pass, decision.decode)) {
      decision.decodeReason = DecodeReason.Picked;
      return true;
    }
    decision.outcome = Outcome.NoDecodeEndpoint;
    decision.decodeReason = DecodeReason.NoDecodeEndpoint;
    // What was picked before it is not used.
    decision.prefill.count = 0;
    decision.encode.count = 0;
    return false;
  }

  private runEncode(facts: RequestFacts): void {
    const decision = this.decision;
    const profile = this.setup.encodeProfile;
    const decider = this.setup.encodeDecider;
    if (profile === null || decider === null || !facts.splits) {
      decision.encodeReason = EncodeReason.SkipNoDecider;
      return;
    }
    decision.encodeReason = decider.encode(facts);
    if (decision.encodeReason != EncodeReason.RunMultimodal) return;
    const pass = this.pass;
    pass.stage = PassStage.Encode;
    if (!profile.filter(pass)) {
      this.missing(Stage.Encode);
      return;
    }
    profile.score(pass);
    preferIdle(pass);
    profile.pick(pass, decision.encode);
    planItems(pass, decision.encode);
  }

  private missing(stage: Stage): void {
    const decision = this.decision;
    if (stage == Stage.Encode) decision.encodeReason = EncodeReason.NoEncodeEndpoint;
    else decision.prefillReason = PrefillReason.NoPrefillEndpoint;
    if (!this.setup.failOnMissingStage) return;
    decision.outcome = Outcome.MissingStage;
    decision.missing = stage;
  }

  /**
   * Runs a profile without the endpoints that another stage has picked; when that leaves none, without the first of them only (the others are no more than
   * what to try after it).
   */
  private runExcluding(profile: Profile, picks: Picks, other: Picks): bool {
    this.mark(other, other.count, 1);
    let found = profile.run(this.pass, picks);
    this.mark(other, other.count, 0);
    if (found || other.count <= 1) return found;
    this.mark(other, 1, 1);
    found = profile.run(this.pass, picks);
    this.mark(other, 1, 0);
    return found;
  }

  private mark(picks: Picks, count: i32, value: u8): void {
    const excluded = this.pass.excluded;
    for (let i = 0; i < count; i++) excluded[picks.list[i]] = <u8>((excluded[picks.list[i]] & 2) | value);
  }

  /** True when the profile's filters leave the first of `picks`. */
  private isCandidate(profile: Profile, picks: Picks): bool {
    const pass = this.pass;
    if (!profile.filter(pass)) return false;
    for (let i = 0; i < pass.count; i++) if (pass.candidates[i] == picks.first) return true;
    return false;
  }

  /** Whether a decision asks for `RequestFacts.requestHash`. */
  get usesRequestHash(): bool {
    return this.setup.p2pSource !== null;
  }

  /** What follows a complete pick: conditional decode and the KV source. */
  private finish(facts: RequestFacts): void {
    const decision = this.decision;
    const decode = decision.decode.first;
    if (facts.ifAvailable && this.table.matchedBlocks[decode] == 0) {
      decision.outcome = Outcome.NotAvailable;
      return;
    }
    const p2p = this.setup.p2pSource;
    if (p2p === null) return;
    let computing = decode;
    const prefill = this.setup.prefillProfile;
    if (prefill !== null && decision.prefill.count > 0 && prefill.name == p2p.prefillProfile) computing = decision.prefill.first;
    this.pair(computing);
    const subset = facts.subset;
    if (subset !== null) for (let i = 0; i < subset.length; i++) if (!subset[i]) this.pass.excluded[i] = 2;
    decision.kvSource = p2p.source(this.table, this.kvSources, this.pass.excluded, facts.blockTokens, facts.requestHash, computing);
    this.pass.includeAll();
  }
}

function capable(profile: Profile | null, table: EndpointTable): StaticArray<u8> {
  return profile === null ? new StaticArray<u8>(table.count) : profile.capable(table);
}

/** The candidate with the fewest requests in flight; of equal ones those with the shortest known queue; of these any. */
function leastLoaded(pass: Pass): i32 {
  const table = pass.table;
  let best = -1;
  let ties = 0;
  for (let i = 0; i < pass.count; i++) {
    const endpoint = pass.candidates[i];
    const order = best < 0 ? -1 : compareLoad(table, endpoint, best);
    if (order < 0) {
      best = endpoint;
      ties = 1;
    } else if (order == 0) {
      ties++;
      if (pass.random.below(ties) == 0) best = endpoint;
    }
  }
  return best;
}

function compareLoad(table: EndpointTable, a: i32, b: i32): i32 {
  if (table.inflightRequests[a] != table.inflightRequests[b]) return table.inflightRequests[a] < table.inflightRequests[b] ? -1 : 1;
  if (!(table.known[a] & table.known[b] & KNOWN_WAITING) || table.waiting[a] == table.waiting[b]) return 0;
  return table.waiting[a] < table.waiting[b] ? -1 : 1;
}
