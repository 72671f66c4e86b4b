import type { BodyEditor } from "../body/edits.js";
import { removeTopLevel } from "../body/prefill-caps.js";
import type { BodyView } from "../body/types.js";

/** Puts transfer parameters in the place of whatever a trusted client sent; those of others are gone already. */
export function setTransferParams(editor: BodyEditor, view: BodyView, json: string | readonly Buffer[]): void {
  removeTopLevel(editor, view, "kv_transfer_params");
  editor.insert("kv_transfer_params", json);
}
