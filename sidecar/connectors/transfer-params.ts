import type { BodyEditor } from "../body/edits.js";
import type { BodyView } from "../body/types.js";

/** Puts transfer parameters in the place of whatever a trusted client sent; those of others are gone already. */
export function setTransferParams(editor: BodyEditor, view: BodyView, json: string | readonly Buffer[]): void {
  for (const member of view.members) if (member.name === "kv_transfer_params" && member.parent === "") editor.remove(member);
  editor.insert("kv_transfer_params", json);
}
