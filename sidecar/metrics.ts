import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";

export type Stage = "encode" | "prefill" | "decode" | "pass_through" | "bootstrap";

/** Seconds; prefill of long prompts and decode of long answers take minutes. */
const DURATION_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

/** What the sidecar counts, on a registry of its own: the data port's `/metrics` is the engine's. */
export class Metrics {
  readonly registry = new Registry();

  readonly requests = new Counter({
    name: "crosspoint_sidecar_requests_total",
    help: "Requests answered, by what was done with them and the status that the client got (0: it left first).",
    labelNames: ["route", "status"],
    registers: [this.registry],
  });
  readonly inFlight = new Gauge({
    name: "crosspoint_sidecar_in_flight_requests",
    help: "Requests that are not answered to their end.",
    registers: [this.registry],
  });
  readonly legsInFlight = new Gauge({ name: "crosspoint_sidecar_in_flight_legs", help: "Open calls to engines.", labelNames: ["stage"], registers: [this.registry] });
  readonly legs = new Counter({
    name: "crosspoint_sidecar_legs_total",
    help: "Calls to engines that ended, by outcome: a status class or the kind of failure.",
    labelNames: ["stage", "outcome"],
    registers: [this.registry],
  });
  readonly legDuration = new Histogram({
    name: "crosspoint_sidecar_leg_duration_seconds",
    help: "From a call's start to its end.",
    labelNames: ["stage"],
    buckets: DURATION_BUCKETS,
    registers: [this.registry],
  });
  readonly legFirstByte = new Histogram({
    name: "crosspoint_sidecar_leg_first_byte_seconds",
    help: "From a call's start to the first byte of its answer.",
    labelNames: ["stage"],
    buckets: DURATION_BUCKETS,
    registers: [this.registry],
  });
  readonly stageFailures = new Counter({
    name: "crosspoint_sidecar_stage_failures_total",
    help: "Encode items, prefills and decodes that failed, and what was done about it.",
    labelNames: ["stage", "reason", "policy"],
    registers: [this.registry],
  });
  readonly handoffInvalid = new Counter({
    name: "crosspoint_sidecar_handoff_invalid_total",
    help: "Prefill answers with 2xx that held no usable hand-off.",
    labelNames: ["reason"],
    registers: [this.registry],
  });
  readonly retries = new Counter({
    name: "crosspoint_sidecar_retries_total",
    help: "Further attempts: after a status or a broken connection, or because a kept connection turned out to be closed.",
    labelNames: ["stage", "reason"],
    registers: [this.registry],
  });
  readonly neverSplit = new Counter({
    name: "crosspoint_sidecar_never_split_total",
    help: "Requests with a prefill header that were run locally because of what they ask for.",
    labelNames: ["reason"],
    registers: [this.registry],
  });
  readonly controlMembersRemoved = new Counter({
    name: "crosspoint_sidecar_control_members_removed_total",
    help: "Members that clients may not set, taken out of their bodies.",
    labelNames: ["member"],
    registers: [this.registry],
  });
  readonly bodiesRefused = new Counter({
    name: "crosspoint_sidecar_bodies_refused_total",
    help: "Bodies that were not handed on.",
    labelNames: ["reason"],
    registers: [this.registry],
  });
  readonly encodeItems = new Counter({
    name: "crosspoint_sidecar_encode_items_total",
    help: "Media items by what became of them: encoded, merged with an equal one, failed, or of a kind that no encoder takes.",
    labelNames: ["outcome"],
    registers: [this.registry],
  });
  readonly handoffsReleased = new Counter({
    name: "crosspoint_sidecar_handoffs_released_total",
    help: "Hand-offs given to decode although the client had left, so that their blocks are freed.",
    registers: [this.registry],
  });
  readonly usageUnread = new Counter({
    name: "crosspoint_sidecar_usage_unread_total",
    help: "Decode answers whose usage could not be read.",
    labelNames: ["reason"],
    registers: [this.registry],
  });

  readonly legBytes = new Counter({
    name: "crosspoint_sidecar_leg_bytes_total",
    help: "Bytes of bodies of calls to engines: sent, and received.",
    labelNames: ["stage", "direction"],
    registers: [this.registry],
  });
  readonly denied = new Counter({
    name: "crosspoint_sidecar_denied_targets_total",
    help: "Entries of routing headers that the allowlist does not have: refused with 403 (prefill), or left out (encode, kv_source).",
    labelNames: ["stage"],
    registers: [this.registry],
  });
  readonly allowlistUpdates = new Counter({
    name: "crosspoint_sidecar_allowlist_updates_total",
    help: "What came of the allowlist's sources: lists taken, and why others were not.",
    labelNames: ["source", "outcome"],
    registers: [this.registry],
  });
  readonly certificateReloads = new Counter({
    name: "crosspoint_sidecar_certificate_reloads_total",
    help: "Changed key pairs of the listener: taken, or refused and the old one kept.",
    labelNames: ["outcome"],
    registers: [this.registry],
  });
  readonly tlsRefused = new Counter({
    name: "crosspoint_sidecar_tls_refused_total",
    help: "Connections to a TLS listener that came to no session: the peer spoke plain text, or the handshake failed.",
    labelNames: ["reason"],
    registers: [this.registry],
  });
  readonly plansIgnored = new Counter({
    name: "crosspoint_sidecar_plans_ignored_total",
    help: "Requests whose routing header asks for a stage that this sidecar has no connector for.",
    labelNames: ["stage"],
    registers: [this.registry],
  });
  readonly clientsCut = new Counter({
    name: "crosspoint_sidecar_clients_cut_total",
    help: "Clients whose connection was ended: their body came too slowly, or their answer was left unread.",
    labelNames: ["reason"],
    registers: [this.registry],
  });

  constructor() {
    for (const reason of ["slow_body", "unread"]) this.clientsCut.inc({ reason }, 0);
    for (const reason of ["plain_text", "handshake"]) this.tlsRefused.inc({ reason }, 0);
    for (const stage of ["encode", "kv_source"]) this.plansIgnored.inc({ stage }, 0);
    for (const stage of ["encode", "prefill", "kv_source"]) this.denied.inc({ stage }, 0);
    // Known labels start at 0, so that a rate exists before the first event.
    for (const reason of ["missing", "not_object", "empty", "remote_block_ids", "remote_request_id", "remote_port", "unreadable"]) this.handoffInvalid.inc({ reason }, 0);
    for (const stage of ["encode", "prefill", "decode", "pass_through", "bootstrap"]) this.legsInFlight.set({ stage }, 0);
  }

  /** Pools and connections, counted when they are asked for. */
  observeUpstreams(stats: () => Readonly<Record<string, { readonly pools: number; readonly connections: number }>>): void {
    const observed = (name: string, help: string, value: "pools" | "connections"): void => {
      new Gauge({
        name: `crosspoint_sidecar_upstream_${name}`,
        help,
        labelNames: ["stage"],
        registers: [this.registry],
        collect() {
          for (const [stage, counts] of Object.entries(stats())) this.set({ stage }, counts[value]);
        },
      });
    };
    observed("pools", "Engines that connections are kept to.", "pools");
    observed("connections", "Connections to engines, in use and idle.", "connections");
  }

  observeBodies(held: () => number): void {
    new Gauge({
      name: "crosspoint_sidecar_buffered_body_bytes",
      help: "Request bodies that are held at the moment.",
      registers: [this.registry],
      collect() {
        this.set(held());
      },
    });
  }

  observeAllowlist(allowlist: { readonly size: number; readonly ready: boolean }): void {
    new Gauge({
      name: "crosspoint_sidecar_allowlist_hosts",
      help: "Names and addresses that routing headers may name.",
      registers: [this.registry],
      collect() {
        this.set(allowlist.size);
      },
    });
    new Gauge({
      name: "crosspoint_sidecar_allowlist_ready",
      help: "1: every source of the allowlist was heard once.",
      registers: [this.registry],
      collect() {
        this.set(allowlist.ready ? 1 : 0);
      },
    });
  }

  /** Node's own: heap, event loop lag, handles. Once per process. */
  collectProcess(): void {
    collectDefaultMetrics({ register: this.registry });
  }
}
