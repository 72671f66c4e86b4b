// What `session-affinity-filter` and `session-affinity-scorer` share (scheduler §2.2): which endpoint the session of a request is bound to. Either the client carries it
// itself, in a header that it was answered with (`encoded_endpoint_header`: nothing is kept), or the session's id is bound to an endpoint in shared data (`session_id`).
import { Build, lower } from "../config/build";
import { Node } from "../config/node";
import { bind, boundTo, idHash } from "../endpoints/bindings";
import { EndpointTable } from "../endpoints/table";
import { Space } from "../store";
import { Pass, PassStage, Picks } from "./pass";
import { Plugin, PluginKind } from "./plugin";

/** Where a session's id may stand. */
export class SessionSource {
  constructor(
    /** Place in `RequestFacts.headers`; -1 until {@link attribute} has been looked up. */
    public header: i32,
    /** Name of the `session-id-producer` that finds it; "" for a header of its own. */
    public readonly attribute: string,
    public readonly node: Node,
  ) {}
}

export abstract class SessionAffinity extends Plugin {
  /** In order; the first that is there counts. One with the token's header when it is carried by the client. */
  readonly sources: Array<SessionSource> = [];
  /** The header that carries the token, in lower case; "" with ids. */
  header: string = "";
  /** Which pick the session is bound to, by the profile that `profileName` names. */
  profile: Node;
  stage: PassStage = PassStage.Decode;
  /** Per endpoint what the client is given to carry: base64 of namespace/name. */
  tokens: StaticArray<string> = [];
  private hashes: StaticArray<u64> = [];
  private ttlS: u32 = 0;
  /** Sessions of one instance are not those of another. */
  private salt: u64 = 0;
  // Of the request at hand: its session, the endpoint that it is bound to (-1: none), and whether that was a candidate.
  private session: u64 = 0;
  protected bound: i32 = -1;
  protected present: bool = false;

  constructor(kind: PluginKind, parameters: Node, build: Build) {
    super(kind | PluginKind.PreRequest);
    this.profile = parameters.get("profileName");
    parameters.fields(["strategy", "profileName", "headerName", "encodedEndpointHeaderConfig", "sessionIdConfig", "sources", "evictionTtlSeconds", "evictionSweepSeconds"]);
    const byId = parameters.get("strategy").oneOf(["encoded_endpoint_header", "session_id"]) == "session_id";
    const encoded = parameters.get("encodedEndpointHeaderConfig");
    encoded.fields(["header"]);
    let ids = parameters.get("sessionIdConfig");
    if (ids.fields(["sources", "evictionTtlSeconds", "evictionSweepSeconds"])) {
      for (let i = 0; i < 3; i++) {
        const name = i == 0 ? "sources" : i == 1 ? "evictionTtlSeconds" : "evictionSweepSeconds";
        if (parameters.has(name)) parameters.get(name).error("belongs into sessionIdConfig, which is given");
      }
    } else ids = parameters;
    this.ttlS = <u32>Math.ceil(seconds(ids.get("evictionTtlSeconds"), 300));
    // Nothing is swept: a binding that is too old does not count, and the oldest makes room.
    seconds(ids.get("evictionSweepSeconds"), 10);
    const sources = ids.get("sources");
    const items = sources.elements();
    if (!byId) {
      const node = encoded.has("header") ? encoded.get("header") : parameters.get("headerName");
      this.sources.push(new SessionSource(build.header(node, "x-session-token"), "", node));
      this.header = lower(node.text("x-session-token"));
    } else if (items.length == 0) this.sources.push(new SessionSource(build.header(sources, "x-session-id"), "", sources));
    else for (let i = 0; i < items.length; i++) this.readSource(items[i], build);
  }

  private readSource(item: Node, build: Build): void {
    if (!item.fields(["header", "attribute"])) return;
    const attribute = item.get("attribute");
    if (attribute.present == item.has("header")) item.error("must have exactly one of header and attribute");
    else if (!attribute.present) this.sources.push(new SessionSource(build.header(item.get("header"), ""), "", item));
    // A data key is type and producer; the producer's name is what counts here.
    else this.sources.push(new SessionSource(-1, attribute.text("").substring(attribute.text("").lastIndexOf("/") + 1), attribute));
  }

  prepare(table: EndpointTable): void {
    this.salt = hashOf(this.name);
    if (this.header.length == 0) return;
    this.tokens = new StaticArray<string>(table.count);
    this.hashes = new StaticArray<u64>(table.count);
    for (let i = 0; i < table.count; i++) {
      this.tokens[i] = base64(table.namespace[i] + "/" + table.name[i]);
      this.hashes[i] = hashOf(this.tokens[i]);
    }
  }

  produce(pass: Pass): void {
    this.session = 0;
    this.bound = -1;
    this.present = false;
    for (let i = 0; i < this.sources.length && !this.session; i++) this.session = pass.facts.headers[this.sources[i].header];
    if (!this.session) return;
    if (this.header.length > 0) this.bound = this.hashes.indexOf(this.session);
    else {
      this.session = (this.session ^ this.salt) * 0x9e3779b185ebca87;
      this.bound = pass.fleet.place(boundTo(pass.store, Space.Sessions, this.session, pass.facts.nowS, this.ttlS));
    }
  }

  /** Position among the candidates of the endpoint that the session is bound to, -1 when it is not one of them. */
  protected find(pass: Pass): i32 {
    if (this.bound < 0) return -1;
    for (let i = 0; i < pass.count; i++) {
      if (pass.candidates[i] != this.bound) continue;
      this.present = true;
      return i;
    }
    return -1;
  }

  /** A session stays with an endpoint that was a candidate, whoever was picked; without one it is bound to the pick. */
  record(pass: Pass, decode: Picks, prefill: Picks, encode: Picks): void {
    if (!this.session || this.header.length > 0) return;
    const picked = (this.stage == PassStage.Decode ? decode : this.stage == PassStage.Prefill ? prefill : encode).first;
    const place = this.present ? this.bound : picked;
    if (place >= 0) bind(pass.store, Space.Sessions, this.session, pass.table.id[place], pass.facts.nowS);
  }
}

/** A number of seconds above 0; 0 is an unset field. */
function seconds(node: Node, fallback: f64): f64 {
  const value = node.float(0, 0, 1e9);
  return value > 0 ? value : fallback;
}

const DIGITS: string = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** The standard alphabet, with padding, of the text's UTF-8. */
export function base64(text: string): string {
  const bytes = Uint8Array.wrap(String.UTF8.encode(text));
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    let bits: u32 = 0;
    for (let k = 0; k < 3; k++) bits = (bits << 8) | (i + k < bytes.length ? bytes[i + k] : 0);
    for (let k = 0; k < 4; k++) out += i + k > bytes.length ? "=" : DIGITS.charAt((bits >> (18 - k * 6)) & 63);
  }
  return out;
}

function hashOf(text: string): u64 {
  const bytes = String.UTF8.encode(text);
  return idHash(changetype<usize>(bytes), bytes.byteLength);
}
