import type { BodyEditor } from "./edits.js";
import type { ApiShape, BodyView, MemberName, MemberParent } from "./types.js";

/** The token limits of each API (sidecar §2, NX-03, NX-07 … NX-09), the one that every engine looks at first. */
const LIMITS: Readonly<Record<ApiShape, readonly MemberName[]>> = {
  chat: ["max_tokens", "max_completion_tokens", "min_tokens"],
  completions: ["max_tokens", "max_completion_tokens", "min_tokens"],
  messages: ["max_tokens", "max_completion_tokens", "min_tokens"],
  responses: ["max_output_tokens"],
  generate: [],
  other: [],
};

const GENERATE_LIMITS: readonly MemberName[] = ["max_tokens", "min_tokens"];

/**
 * Which limits are written: `all` of the API, also those that the client left out (nixlv2, shared-storage), or the `first` and, of the others, those that the
 * client sent (mooncake, offloading: MC-03, OF-02).
 */
export type Caps = "all" | "first";

/**
 * Makes a body ask for one token in one answer: the limits of its API at 1, `stream` false (a streamed prefill hands nothing over, real-engine §4), no
 * `stream_options`. A limit that stands in the body several times is set in each place, so that it holds whichever an engine takes. What is below a limit of
 * one token goes with it: an engine refuses `min_tokens` above `max_tokens` (D4).
 */
export function capToOneToken(editor: BodyEditor, view: BodyView, shape: ApiShape, caps: Caps = "all"): void {
  const [first] = LIMITS[shape];
  for (const name of LIMITS[shape]) if (caps === "all" || name === first || find(view, name, "").length > 0) setTopLevel(editor, view, name, "1");
  if (shape === "generate") capSamplingParams(editor, view, caps);
  // A response that only feeds another engine is not to be kept by the one that prefills.
  if (shape === "responses") setTopLevel(editor, view, "store", "false");
  setTopLevel(editor, view, "stream", "false");
  removeTopLevel(editor, view, "stream_options");
}

function capSamplingParams(editor: BodyEditor, view: BodyView, caps: Caps): void {
  const holders = find(view, "sampling_params", "");
  const whole = caps === "all" ? '{"max_tokens":1,"min_tokens":1}' : '{"max_tokens":1}';
  if (holders.length === 0) editor.insert("sampling_params", whole);
  for (const holder of holders) {
    if (holder.kind !== "object") {
      editor.replaceValue(holder, whole);
      continue;
    }
    for (const name of GENERATE_LIMITS) {
      const places = find(view, name, "sampling_params").filter(({ parentIndex }) => view.members[parentIndex] === holder);
      for (const place of places) editor.replaceValue(place, "1");
      if (places.length === 0 && (caps === "all" || name === "max_tokens")) editor.insertInto(holder, name, "1");
    }
  }
}

/** Sets a member in every place where it stands, or adds it. */
export function setTopLevel(editor: BodyEditor, view: BodyView, name: MemberName, json: string): void {
  const places = find(view, name, "");
  for (const place of places) editor.replaceValue(place, json);
  if (places.length === 0) editor.insert(name, json);
}

/** Takes a member away wherever it stands at the top. */
export function removeTopLevel(editor: BodyEditor, view: BodyView, name: MemberName): void {
  for (const place of find(view, name, "")) editor.remove(place);
}

function find(view: BodyView, name: MemberName, parent: MemberParent): BodyView["members"] {
  return view.members.filter((member) => member.name === name && member.parent === parent);
}
