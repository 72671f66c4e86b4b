import { describe, expect, it } from "vitest";
import { note, parseYaml, toCommentedYaml } from "./yaml.js";

describe("parseYaml", () => {
  it("reads several documents, and leaves out empty ones", () => {
    const { documents, problems } = parseYaml("---\na: 1\n---\n# nothing\n---\n{\"b\": [true, null, \"x\"]}\n", "f.yaml");
    expect(problems).toEqual([]);
    expect(documents.map(({ value }) => value)).toEqual([{ a: 1 }, { b: [true, null, "x"] }]);
    expect(parseYaml("", "f.yaml").documents).toEqual([]);
  });

  it("knows the line of a field, or of the nearest one around it", () => {
    const [document] = parseYaml("plugins:\n  - type: a\n    parameters:\n      x: 1\n  -\n    type: b\n", "f.yaml").documents;
    expect(document?.lineOf("plugins[0].parameters.x")).toBe(4);
    expect(document?.lineOf("plugins[1].type")).toBe(6);
    expect(document?.lineOf("plugins[1].parameters.y")).toBe(6);
    expect(document?.lineOf("plugins[7]")).toBe(1);
    expect(document?.lineOf("nothing")).toBe(1);
    expect(document?.lineOf("")).toBe(1);
  });

  it("counts lines over the whole file", () => {
    const { documents } = parseYaml("a: 1\n---\nb:\n  c: 2\n", "f.yaml");
    expect(documents[1]?.lineOf("b.c")).toBe(4);
  });

  it("resolves anchors and merge keys", () => {
    const { documents } = parseYaml("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", "f.yaml");
    expect(documents[0]?.value).toMatchObject({ use: { x: 1, y: 3 } });
  });

  it.each([
    ["a: [1", 1],
    ["a: 1\nb: 2\na: 3\n", 3],
    ["a:\n\t- b", 2],
  ])("refuses %j at its line", (text, line) => {
    const { documents, problems } = parseYaml(text, "f.yaml");
    expect(documents).toEqual([]);
    expect(problems[0]).toMatchObject({ severity: "error", file: "f.yaml" });
    expect(problems.map((problem) => problem.line)).toContain(line);
  });

  it("refuses numbers that JSON does not have, by name", () => {
    expect(parseYaml("a:\n- &e {x: 1, y: *e}\n", "f.yaml").problems).toMatchObject([{ path: "a[0].y", message: "an alias stands inside what it stands for" }]);
    expect(parseYaml("x: &x [1, [*x]]\n", "f.yaml").problems).toMatchObject([{ path: "x[1][0]" }]);
    expect(parseYaml("a: &a {b: 1}\nc: [*a, *a]\n", "f.yaml").problems).toEqual([]);
    expect(parseYaml("a:\n  b: [1, .inf]\n", "f.yaml").problems).toMatchObject([{ path: "a.b[1]", line: 2, message: "must be a finite number" }]);
    expect(parseYaml("a: .nan\n", "f.yaml").problems).toMatchObject([{ path: "a" }]);
  });

  it("does not expand a bomb of aliases", () => {
    const levels = Array.from({ length: 12 }, (_, i) => `l${String(i + 1)}: &l${String(i + 1)} [${Array.from({ length: 10 }, () => `*l${String(i)}`).join(", ")}]`);
    const { documents, problems } = parseYaml(`l0: &l0 [x]\n${levels.join("\n")}\n`, "f.yaml");
    expect(documents).toEqual([]);
    expect(problems).toHaveLength(1);
  });
});

describe("toCommentedYaml", () => {
  it("puts comments above fields and items, and the heading on top", () => {
    const value = { list: [note({ a: 1 }, { "": "an item", a: "a field\nof two lines" }), { b: 2 }], c: { d: 3 } };
    const text = toCommentedYaml(note(value, { c: "a map" }), "made by hand");
    expect(text).toBe("# made by hand\n\nlist:\n  # an item\n  - # a field\n    # of two lines\n    a: 1\n  - b: 2\n# a map\nc:\n  d: 3\n");
  });

  it("comes back as it went", () => {
    const value = { a: "yes", b: "1", c: "%X:Y%", d: [[], {}], e: "line\nline", f: null, g: "'\"", h: 1.5 };
    expect(parseYaml(toCommentedYaml(value, "x"), "f.yaml").documents[0]?.value).toEqual(value);
  });

  it("writes the same object twice, not once and an alias", () => {
    const same = { x: 1 };
    expect(toCommentedYaml({ a: same, b: same }, "h")).not.toMatch(/[&*]/);
  });
});
