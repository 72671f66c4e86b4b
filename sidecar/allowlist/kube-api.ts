import { KubeConfig, Watch, CoreV1Api, CustomObjectsApi } from "@kubernetes/client-node";
import { POOL_VERSIONS } from "./pool.js";
import type { ListWatch, WatchEnd } from "./reflector.js";

// Loaded only where an allowlist is made from a pool: the client holds 40 MB.

/** A connection that says nothing for so long has no API server behind it any more. */
const CONNECT_TIMEOUT_MS = 30_000;
/** Watches are ended by the server after so long, and begun again where they ended: a connection that died unseen is noticed by then. */
const WATCH_SECONDS = 300;
const GRACE_MS = 30_000;
/** Pods of one page. */
const PAGE = 500;

/** The API server of the cluster that we are in: `KUBECONFIG`, the home folder's file, or the pod's service account (sidecar §6). */
export function kubeConfig(): KubeConfig {
  const config = new KubeConfig();
  config.loadFromDefault();
  // What the client makes up where there is nothing.
  const server = config.getCurrentCluster()?.server ?? "";
  if (server === "" || (server === "http://localhost:8080" && (process.env["KUBECONFIG"] ?? "") === "")) throw new Error("no Kubernetes cluster is configured");
  return config;
}

function statusOf(error: unknown): number {
  for (const name of ["code", "statusCode"] as const) {
    const value: unknown = typeof error === "object" && error !== null ? Reflect.get(error, name) : undefined;
    if (typeof value === "number") return value;
  }
  return 0;
}

/** An error of the API with its status. */
export class ApiStatusError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function called<T>(what: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    const text = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
    throw new ApiStatusError(statusOf(error), `${what}: ${text}`);
  }
}

interface Listed {
  readonly metadata?: { readonly resourceVersion?: string; readonly _continue?: string };
  readonly items?: unknown[];
}

/** One InferencePool, watched by its name. */
export function poolListWatch(config: KubeConfig, { group, namespace, name }: { readonly group: string; readonly namespace: string; readonly name: string }): ListWatch {
  const version = POOL_VERSIONS[group] ?? "v1";
  const api = config.makeApiClient(CustomObjectsApi);
  const fieldSelector = `metadata.name=${name}`;
  return {
    list: async (resourceVersion) => {
      const listed = (await called(
        "list of the inference pool",
        api.listNamespacedCustomObject({ group, version, namespace, plural: "inferencepools", fieldSelector, ...(resourceVersion === "" ? {} : { resourceVersion }) }),
      )) as Listed;
      return { items: listed.items ?? [], resourceVersion: listed.metadata?.resourceVersion ?? "" };
    },
    watch: watcher(config, `/apis/${group}/${version}/namespaces/${namespace}/inferencepools`, { fieldSelector }),
  };
}

/** The pods of a namespace with these labels. */
export function podListWatch(config: KubeConfig, namespace: string, labelSelector: string): ListWatch {
  const api = config.makeApiClient(CoreV1Api);
  return {
    list: async (resourceVersion) => {
      const items: unknown[] = [];
      for (let next = ""; ; ) {
        const page = (await called(
          "list of the pool's pods",
          api.listNamespacedPod({ namespace, labelSelector, ...(resourceVersion === "" ? { limit: PAGE } : { resourceVersion }), ...(next === "" ? {} : { _continue: next }) }),
        )) as Listed;
        for (const item of page.items ?? []) items.push(item);
        next = page.metadata?._continue ?? "";
        if (next === "") return { items, resourceVersion: page.metadata?.resourceVersion ?? "" };
      }
    },
    watch: watcher(config, `/api/v1/namespaces/${namespace}/pods`, { labelSelector }),
  };
}

function watcher(config: KubeConfig, path: string, selectors: Record<string, string>): ListWatch["watch"] {
  return (resourceVersion, onEvent) => {
    let end: (end: WatchEnd) => void = () => undefined;
    let controller: AbortController | null = null;
    let over = false;
    const ended = new Promise<WatchEnd>((resolve) => {
      end = (how) => {
        if (over) return;
        over = true;
        clearTimeout(timer);
        controller?.abort();
        resolve(how);
      };
    });
    // Spread, so that the sidecars of a cluster do not all come back at once.
    const seconds = Math.round(WATCH_SECONDS * (1 + Math.random()));
    let timer = setTimeout(() => {
      end({ status: 0, message: "the API server does not answer" });
    }, CONNECT_TIMEOUT_MS).unref();
    const query = { ...selectors, resourceVersion, allowWatchBookmarks: true, timeoutSeconds: seconds };
    new Watch(config)
      .watch(
        path,
        query,
        (type: string, object: unknown) => {
          if (!over) onEvent(type, object);
        },
        (error: unknown) => {
          end(error === null || error === undefined ? { status: 200, message: "" } : { status: statusOf(error), message: error instanceof Error ? error.message : "the watch broke" });
        },
      )
      .then(
        (made) => {
          controller = made;
          if (over) {
            made.abort();
            return;
          }
          clearTimeout(timer);
          timer = setTimeout(() => {
            end({ status: 0, message: "the watch went silent" });
          }, seconds * 1000 + GRACE_MS).unref();
        },
        (error: unknown) => {
          end({ status: statusOf(error), message: error instanceof Error ? error.message : String(error) });
        },
      );
    return {
      ended,
      close: () => {
        end({ status: 200, message: "closed" });
      },
    };
  };
}
