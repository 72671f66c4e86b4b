export { Decision, DecisionType, DECISION_TYPES, Outcome, Stage } from "./decision";
export * from "./headers";
export { DecodeReason, DECODE_REASONS, EncodeReason, ENCODE_REASONS, PrefillReason, PREFILL_REASONS } from "./reasons";
export { Scheduler, SchedulerSetup } from "./scheduler";
