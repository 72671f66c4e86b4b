// endpoints/: who is there, how they are, what they have in flight. Knows nothing of Envoy; its state is in a Store.
export { AdapterBook, readAdapters } from "./adapters";
export { joinHostPort } from "./address";
export { bind, boundTo, idHash } from "./bindings";
export { EngineNames } from "./engine-names";
export { Exposition, nameHash } from "./exposition";
export { Fleet } from "./fleet";
export { fnv1a32 } from "./fnv";
export { EndpointIds } from "./ids";
export { InFlight } from "./inflight";
export { holdLease } from "./lease";
export { DRAINING, FAILURES_OUT, LoadBook, LoadEntry, noteSinceScrape, readLoad, reportedBlockTokens, SCRAPED, UNREACHABLE } from "./load";
export { consumeReports, reportFailure } from "./reports";
export { EndpointTable, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING } from "./table";
