import type { JsonObject } from "../json.js";
import type { GatewayOptions } from "../options.js";
import type { Settings } from "../settings.js";
import { note, toCommentedYaml } from "../yaml.js";
import { clusters } from "./clusters.js";
import { listeners, socketAddress } from "./listeners.js";
import { overloadManager } from "./overload.js";
import { statsTags } from "./stats.js";

export { canMatch, openedControlPaths } from "./routes.js";

/** The bootstrap as a value. */
export function bootstrap(settings: Settings, options: GatewayOptions): JsonObject {
  return note(
    {
      node: { id: "crosspoint", cluster: "crosspoint" },
      admin: { address: socketAddress(settings.admin) },
      stats_config: { stats_tags: statsTags() },
      overload_manager: overloadManager(settings),
      static_resources: { listeners: listeners(settings, options), clusters: clusters(settings, options) },
    },
    {
      stats_config: "Labels in the names of the filter's counters.",
      overload_manager: "Memory and connections; nothing is queued for either.",
    },
  );
}

/** The bootstrap as the text that Envoy reads. */
export function bootstrapText(settings: Settings, options: GatewayOptions): string {
  return toCommentedYaml(
    bootstrap(settings, options),
    "Written by Crosspoint's renderer; edits are lost at the next rendering. Start with: envoy -c THIS_FILE\n" +
      "Scheduling, endpoints and module are in the files beside this one, which Envoy reads again when they change;\n" +
      "a change of this file needs a restart (and a restarted Envoy begins with a cold prefix index).",
  );
}
