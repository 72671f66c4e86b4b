import type { BodyView, Member, MemberParent } from "./types.js";

/** Objects in which a real engine was seen to follow transfer parameters (real-engine §4). */
const TRANSFER_PARENTS: readonly MemberParent[] = ["", "vllm_xargs", "sampling_params.extra_args"];

/** The members of a client's body that steer an engine's transfers: none of them may reach one (DESIGN, decision 5). */
export function controlMembers(view: BodyView): Member[] {
  return view.members.filter(({ name, parent }) => {
    if (name === "bootstrap") return parent === "";
    return (name === "kv_transfer_params" || name === "ec_transfer_params") && TRANSFER_PARENTS.includes(parent);
  });
}

/** The name under which a removed member is counted and logged: its place and its kind, never its value. */
export function controlMemberLabel(member: Member): string {
  const name = member.name === "bootstrap" ? "bootstrap_*" : member.name;
  return member.parent === "" ? name : `${member.parent}.${name}`;
}
