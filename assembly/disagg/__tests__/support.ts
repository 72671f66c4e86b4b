// The routing headers' values as texts.
import { EndpointTable } from "../../endpoints/table";
import { writePicks } from "../../filter/picks";
import { Writer } from "../../host/bytes";
import { Picks } from "../../scheduling/pass";
import { destinationsOf } from "../headers";

const out = new Writer(64);

function joined(names: StaticArray<string>, picks: Picks): string {
  writePicks(out, names, picks);
  return String.UTF8.decodeUnsafe(out.at, out.size);
}

export function hostPorts(table: EndpointTable, picks: Picks): string {
  return joined(table.hostPort, picks);
}

export function destinations(table: EndpointTable, picks: Picks, primaryPort: i32): string {
  return joined(destinationsOf(table, primaryPort), picks);
}
