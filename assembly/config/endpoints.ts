// The endpoints of a configuration (scheduler §8.1, §8.3). A bad entry is reported and left out; the others stand.
import { canonicalAddress, joinHostPort } from "../endpoints/address";
import { EndpointTable } from "../endpoints/table";
import { Node } from "./node";
import { Problems } from "./problems";

class Entry {
  name: string = "";
  namespace: string = "default";
  address: string = "";
  port: i32 = 0;
  labels: Map<string, string> = new Map<string, string>();
  /** Place in the list of the configuration. */
  index: i32 = 0;
}

export class Endpoints {
  constructor(
    public readonly table: EndpointTable,
    /** Where each row of the table stands in the configuration's list. */
    public readonly sources: StaticArray<i32>,
  ) {}
}

/**
 * Reads the list. What is wrong with one entry is a warning under its path, `endpoints[3].port`, and the entry is left out; of two entries with one namespace
 * and name the last counts, in the place of the first.
 */
export function readEndpoints(node: Node, problems: Problems): Endpoints {
  const entries = new Array<Entry>();
  const places = new Map<string, i32>();
  const addresses = new Map<string, i32>();
  if (!node.present) node.error("is required");
  const items = node.elements();
  for (let i = 0; i < items.length; i++) {
    // The entry's own errors must not refuse the whole configuration.
    const own = new Problems();
    const entry = readEntry(items[i].reportingTo(own), i);
    for (let k = 0; k < own.warnings.length; k++) problems.warn(own.warnings[k].path, own.warnings[k].message);
    if (own.errors.length > 0) {
      for (let k = 0; k < own.errors.length; k++) problems.warn(own.errors[k].path, own.errors[k].message + " (the entry is left out)");
      continue;
    }
    const id = entry.namespace + "/" + entry.name;
    if (places.has(id)) {
      items[i].warn("a second endpoint '" + id + "': the last one counts");
      entries[places.get(id)] = entry;
    } else {
      places.set(id, entries.length);
      entries.push(entry);
    }
    const hostPort = joinHostPort(entry.address, entry.port);
    if (addresses.has(hostPort) && addresses.get(hostPort) != places.get(id)) items[i].warn("has the address of another endpoint, " + hostPort);
    addresses.set(hostPort, places.get(id));
  }
  if (node.isArray && entries.length == 0) node.warn("there is no endpoint: every request will be refused");
  return tableOf(entries);
}

function readEntry(node: Node, index: i32): Entry {
  const entry = new Entry();
  entry.index = index;
  if (!node.fields(["name", "namespace", "address", "port", "labels"], true)) return entry;
  const addressNode = node.get("address");
  const address = addressNode.text("");
  if (!addressNode.present) addressNode.error("is required");
  else if (addressNode.isString) {
    entry.address = canonicalAddress(address);
    if (entry.address.length == 0) addressNode.error("must be an IPv4 or IPv6 address" + addressNode.got());
  }
  entry.port = readPort(node.get("port"));
  const namespace = node.textOf("namespace", "");
  if (namespace.length > 0) entry.namespace = namespace;
  const nameNode = node.get("name");
  entry.name = nameNode.text("");
  if (entry.name.length == 0 && (nameNode.isString || !nameNode.present)) {
    entry.name = joinHostPort(entry.address, entry.port);
    nameNode.warn("missing: the endpoint is called " + entry.name);
  }
  const labels = node.get("labels");
  if (labels.object()) {
    const members = labels.members();
    for (let i = 0; i < members.length; i++) {
      const member = members[i];
      if (!member.isString) member.error("must be a string");
      else if (entry.labels.has(member.name)) member.error("given more than once");
      else entry.labels.set(member.name, member.text(""));
    }
  }
  return entry;
}

/** A number, or its digits as a string, of 1 to 65535. */
function readPort(node: Node): i32 {
  if (!node.present) {
    node.error("is required");
    return 0;
  }
  if (node.isNumber) return node.int(0, 1, 65535);
  const text = node.isString ? node.text("") : "";
  let port = 0;
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9 || i > 4) {
      port = 0;
      break;
    }
    port = port * 10 + digit;
  }
  if (port < 1 || port > 65535) {
    node.error("must be a port between 1 and 65535" + node.got());
    return 0;
  }
  return port;
}

function tableOf(entries: Array<Entry>): Endpoints {
  const table = new EndpointTable(entries.length);
  const sources = new StaticArray<i32>(entries.length);
  for (let i = 0; i < entries.length; i++) {
    const entry = entries[i];
    table.name[i] = entry.name;
    table.namespace[i] = entry.namespace;
    table.address[i] = entry.address;
    table.port[i] = entry.port;
    table.hostPort[i] = joinHostPort(entry.address, entry.port);
    table.labels[i] = entry.labels;
    sources[i] = entry.index;
  }
  return new Endpoints(table, sources);
}
