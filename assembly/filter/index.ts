// filter/: a request's life in Envoy.
import { Bytes, ContextFactory, getProperty, propertyAt, propertySize, RootContext } from "../host";
import { FilterRoot } from "./root";
import { StateRoot } from "./state";

const ROOT_ID = new Bytes("plugin_root_id");

/** Which root a context is, by the root id in the plugin's configuration: `crosspoint_state` is the state listener's. */
export class Factory extends ContextFactory {
  createRoot(id: u32): RootContext {
    const name = getProperty(ROOT_ID) ? String.UTF8.decodeUnsafe(propertyAt, propertySize) : "";
    if (name == "crosspoint_state") return new StateRoot();
    return new FilterRoot();
  }
}
