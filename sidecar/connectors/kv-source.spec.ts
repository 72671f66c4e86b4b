import { describe, expect, it } from "vitest";
import { parseCandidate, type Candidate } from "../candidates.js";
import { parseOptions } from "../options.js";
import { p2pPortOf, pullMember } from "./kv-source.js";

function candidate(text: string): Candidate {
  const parsed = parseCandidate(text);
  if (parsed === null) throw new Error(text);
  return parsed;
}

describe("p2pPortOf", () => {
  const ranked = { port: 8000, p2pConnectorPort: 7777, dataParallelSize: 4 };

  it.each([
    [8000, 7777],
    [8002, 7779],
    [8003, 7780],
    [7999, 7777],
    [8004, 7777],
  ])("C-OF-09: with four ranks from 8000 on, port %i is reached at %i", (port, p2p) => {
    expect(p2pPortOf(port, ranked)).toBe(p2p);
  });

  it("C-OF-09: without ranks every port is reached at the base", () => {
    for (const port of [8000, 8001, 9]) expect(p2pPortOf(port, { ...ranked, dataParallelSize: 1 })).toBe(7777);
  });
});

describe("pullMember", () => {
  const { options } = parseOptions([], {});

  it("names the source without brackets, under an id of its own", () => {
    const text = `{${String(pullMember(candidate("[fd00::9]:8000"), candidate("10.0.0.7:8000"), options))}}`;
    expect(JSON.parse(text)).toMatchObject({ p2p: { remote_host: "fd00::9", remote_port: 7777 } });
    const again = pullMember(candidate("[fd00::9]:8000"), candidate("10.0.0.7:8000"), options);
    expect(`{${String(again)}}`).not.toBe(text);
  });

  it("C-OF-05: is none where source and prefiller are one; another port of the pod is another peer", () => {
    expect(pullMember(null, candidate("h:1"), options)).toBeNull();
    expect(pullMember(candidate("h:1"), candidate("http://h:1"), options)).toBeNull();
    expect(pullMember(candidate("h:2"), candidate("h:1"), options)).not.toBeNull();
  });
});
