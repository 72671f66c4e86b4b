// What plugin readers share while one configuration is built: where to report, and which other instances they rely on.
import { MOST_HEADERS } from "../scheduling/request";
import { TopologyLabels } from "../scheduling/topology";
import { Node } from "./node";
import { Problems } from "./problems";

/** A consumer's mention of a producer instance, checked when all plugins are made (scheduler §1.4, data keys). */
export class ProducerReference {
  constructor(
    public readonly node: Node,
    public readonly name: string,
    /** Type the instance must have; also the name that is always good, since a missing default producer is made. */
    public readonly type: string,
  ) {}
}

/** A header whose value plugins go by, or a cookie in it. */
export class WantedHeader {
  constructor(
    /** In lower case. */
    public readonly name: string,
    /** "": the header's own value. */
    public readonly cookie: string,
  ) {}
}

export class Build {
  /** What `RequestFacts.headers` holds, in its order. */
  readonly headers: Array<WantedHeader> = [];

  readonly producerReferences: Array<ProducerReference> = [];

  /** Shared by all topology plugins; `topology-extractor` may rename the labels. */
  readonly topologyLabels: TopologyLabels = new TopologyLabels();

  constructor(public readonly problems: Problems) {}

  /** Place in `RequestFacts.headers` of the header that `node` names (`fallback` when it is absent), or of the cookie `cookie` in the header `cookie`. */
  header(node: Node, fallback: string, cookie: string = ""): i32 {
    const name = cookie.length > 0 ? "cookie" : lower(node.text(fallback));
    if (!isToken(name) || !isToken(cookie.length > 0 ? cookie : name)) {
      if (node.isString || !node.present) node.error("must be a name of letters, digits, '-', '_' and '.'");
      return 0;
    }
    for (let i = 0; i < this.headers.length; i++) if (this.headers[i].name == name && this.headers[i].cookie == cookie) return i;
    if (this.headers.length == MOST_HEADERS) {
      node.error("at most " + MOST_HEADERS.toString() + " headers may be named in all");
      return 0;
    }
    this.headers.push(new WantedHeader(name, cookie));
    return this.headers.length - 1;
  }

  /** Reads the parameter `field`, a producer's name; absent and "" mean the default instance. */
  producer(parameters: Node, field: string, type: string): void {
    const node = parameters.get(field);
    const name = node.text("");
    if (name.length > 0) this.producerReferences.push(new ProducerReference(node, name, type));
  }
}

export const APPROX_PREFIX_CACHE_PRODUCER: string = "approx-prefix-cache-producer";
export const INFLIGHT_LOAD_PRODUCER: string = "inflight-load-producer";
export const MM_EMBEDDINGS_CACHE_PRODUCER: string = "mm-embeddings-cache-producer";
export const SESSION_ID_PRODUCER: string = "session-id-producer";
export const TOKEN_PRODUCER: string = "token-producer";
export const TOPOLOGY_EXTRACTOR: string = "topology-extractor";

/** With the letters of ASCII in lower case; the library's own brings tables for all of Unicode. */
export function lower(text: string): string {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    out += String.fromCharCode(c >= 0x41 && c <= 0x5a ? c | 0x20 : c);
  }
  return out;
}

/** 1 to 128 letters, digits, `-`, `_` and `.`: what names of headers and cookies are made of in practice. */
function isToken(text: string): bool {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    const letter = (c | 0x20) - 0x61;
    if (<u32>letter > 25 && <u32>(c - 0x30) > 9 && c != 0x2d && c != 0x5f && c != 0x2e) return false;
  }
  return text.length > 0 && text.length <= 128;
}

export const NOT_POSITIVE: string = "must be greater than 0: the default is used";

/** Begins every refusal of something that the reference has and we have not. */
export const NOT_IN_LINE: string = "known, not supported in-line: ";

/** For plugins without parameters. The reference's factories ignore what stands there, so files with such a block exist. */
export function noParameters(parameters: Node): void {
  if (parameters.present) parameters.warn("the plugin takes no parameters: ignored");
}

/** For a text that the reference accepts and does nothing with. */
export function unused(node: Node): void {
  if (!node.present) return;
  node.text("");
  node.warn("deprecated and unused");
}
