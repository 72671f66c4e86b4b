import type { Exchange, Job } from "../exchange.js";
import type { KvConnectorName } from "../options.js";

/**
 * A way of moving KV blocks from a prefiller to the engine beside us. A connector owns the order of the legs and what is written into their bodies; stages/
 * owns how a leg is called, watched, retried and relayed. A new connector is one file and one line in the registry.
 */
export interface KvConnector {
  readonly name: KvConnectorName;
  /** Carries a request out with remote prefill and answers the client. Never rejects for what an engine or a client does. */
  serve(exchange: Exchange, job: Job): Promise<void>;
}
