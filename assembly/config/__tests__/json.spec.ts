import { JsonDoc, Kind, MAX_DEPTH } from "../json";
import { Node } from "../node";
import { Problems } from "../problems";
import { problemsText } from "./support";

/** Error of a text that must be refused. */
function errorOf(text: string): string {
  return JsonDoc.parse(text).error;
}

function number(text: string): f64 {
  return JsonDoc.parse(text).number(0);
}

let problems = new Problems();

/** The root of a text, its problems in `problems`. */
function root(text: string): Node {
  problems = new Problems();
  return Node.root(JsonDoc.parse(text), 0, "", problems);
}

describe("JSON text", () => {
  it("reads every kind of value", () => {
    const doc = JsonDoc.parse(' {"a" : [null, true, false, -1.5e2, "x"], "b":{}, "c":[]} ');
    expect(doc.error).toBe("");
    expect(doc.kind(0)).toBe(Kind.Object);
    expect(doc.count(0)).toBe(3);
    const list = doc.first(0);
    expect(doc.name(list)).toBe("a");
    expect(doc.count(list)).toBe(5);
    let row = doc.first(list);
    expect(doc.kind(row)).toBe(Kind.Null);
    row = doc.next(row);
    expect(doc.kind(row)).toBe(Kind.True);
    row = doc.next(row);
    expect(doc.kind(row)).toBe(Kind.False);
    row = doc.next(row);
    expect(doc.number(row)).toBe(-150);
    row = doc.next(row);
    expect(doc.string(row)).toBe("x");
    expect(doc.next(row)).toBe(-1);
    const b = doc.next(list);
    expect(doc.name(b)).toBe("b");
    expect(doc.first(b)).toBe(-1);
    expect(doc.kind(doc.next(b))).toBe(Kind.Array);
  });

  it("resolves escapes in values and in names", () => {
    const doc = JsonDoc.parse('{"llm-d.ai\\/r\\u006fle":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00x"}');
    expect(doc.error).toBe("");
    expect(doc.name(1)).toBe("llm-d.ai/role");
    expect(doc.nameIs(1, "llm-d.ai/role")).toBe(true);
    expect(doc.nameIs(1, "llm-d.ai/rolf")).toBe(false);
    expect(doc.string(1)).toBe('"\\/\b\f\n\r\t\u00e9\ud83d\ude00x');
  });

  it("keeps lone surrogates and NUL", () => {
    expect(JsonDoc.parse('"\\ud800"').string(0).charCodeAt(0)).toBe(0xd800);
    expect(JsonDoc.parse('"a\\u0000b"').string(0).length).toBe(3);
  });

  it("reads numbers of every size", () => {
    expect(number("0")).toBe(0);
    expect(number("-0")).toBe(0);
    expect(number("1E5")).toBe(100000);
    expect(number("0.25")).toBe(0.25);
    expect(number("9007199254740991")).toBe(9007199254740991);
    expect(number("1e400")).toBe(Infinity);
    expect(number("-1e400")).toBe(-Infinity);
    expect(number("1e-400")).toBe(0);
    expect(number("0e999999999999")).toBe(0);
    expect(number("1e999999999999")).toBe(Infinity);
    expect(number("1e-999999999999")).toBe(0);
    expect(number("0." + "0".repeat(400) + "1")).toBe(0);
    expect(number("0.1")).toBe(0.1);
    expect(number("0.85")).toBe(0.85);
    expect(number("-12.375e-2")).toBe(-0.12375);
    expect(number("123456789.125")).toBe(123456789.125);
    expect(Math.abs(number("1e100") / 1e100 - 1) < 1e-15).toBe(true);
    expect(number("100000000000000000000000")).toBe(1e23);
    expect(number("1.7976931348623157e308") > 1.797e308).toBe(true);
    expect(number("1" + "0".repeat(400))).toBe(Infinity);
  });

  it("refuses what is no JSON", () => {
    const bad: StaticArray<string> = [
      "", " ", "{", "[", "}", "]", "[1,]", "[,1]", "[1 2]", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", "{1:2}", '{"a":1 "b":2}', "[1}", '{"a":1]', "tru", "True", "nul", "NaN", "Infinity", "01", "-", "-a", "1.", ".5", "1e",
      "1e+", "+1", "0x10", '"', '"abc', '"\\x"', '"\\u12"', '"\\u12g4"', '"\n"', '"\t"', "1 2", "{} {}", "[]x", "'a'", "/* */1", "\u00a01",
    ];
    for (let i = 0; i < bad.length; i++) expect(errorOf(bad[i]) != "").toBe(true, bad[i]);
  });

  it("says where", () => {
    const doc = JsonDoc.parse('{"a":1,"b":x}');
    expect(doc.error).toBe("expected a value");
    expect(doc.errorAt).toBe(11);
  });

  it("bounds the depth, on its own stack", () => {
    expect(errorOf("[".repeat(MAX_DEPTH) + "1" + "]".repeat(MAX_DEPTH))).toBe("");
    expect(errorOf("[".repeat(MAX_DEPTH + 1) + "1" + "]".repeat(MAX_DEPTH + 1))).toBe("nested deeper than 64 levels");
    expect(errorOf("[".repeat(100000))).toBe("nested deeper than 64 levels");
    expect(errorOf('{"a":'.repeat(100000))).toBe("nested deeper than 64 levels");
  });

  it("accepts a byte order mark", () => {
    expect(errorOf("\ufeff{}")).toBe("");
  });

  it("takes a name of any length", () => {
    const doc = JsonDoc.parse('{"' + "a".repeat(70000) + '":1,"b":2}');
    expect(doc.error).toBe("");
    expect(doc.count(0)).toBe(2);
    expect(doc.name(1).length).toBe(70000);
    expect(doc.name(2)).toBe("b");
  });
});

describe("reading with a path", () => {
  it("names the place of a nested value", () => {
    const node = root('{"plugins":[{},{"parameters":{"x":"no"}}]}').get("plugins").elements()[1].get("parameters");
    node.get("x").int(0, 0, 1);
    node.get("gone").error("missing");
    expect(problemsText(problems.errors)).toBe("plugins[1].parameters.x: must be a whole number between 0 and 1\nplugins[1].parameters.gone: missing");
  });

  it("a prefix stands before the path, a list may be the root", () => {
    problems = new Problems();
    const list = Node.root(JsonDoc.parse("[1]"), 0, "endpoints", problems);
    list.elements()[0].error("bad");
    expect(problemsText(problems.errors)).toBe("endpoints[0]: bad");
  });

  it("whole numbers, in whatever form they are written", () => {
    expect(root("5").int(0, 0, 10)).toBe(5);
    expect(root("5.0").int(0, 0, 10)).toBe(5);
    expect(root("1e1").int(0, 0, 10)).toBe(10);
    expect(problems.errors.length).toBe(0);
    const bad: StaticArray<string> = ["5.5", "11", "-1", "1e400", "-1e400", '"5"', "true", "[]", "{}"];
    for (let i = 0; i < bad.length; i++) {
      expect(root(bad[i]).int(7, 0, 10)).toBe(7, bad[i]);
      expect(problems.errors.length).toBe(1, bad[i]);
    }
  });

  it("null and absence are the fallback, without a problem", () => {
    expect(root("null").int(7, 0, 10)).toBe(7);
    expect(root("null").text("x")).toBe("x");
    expect(root("null").bool(true)).toBe(true);
    expect(root("null").float(1.5, 0, 2)).toBe(1.5);
    expect(root("{}").get("a").get("b").int(3, 0, 9)).toBe(3);
    expect(root("null").object()).toBe(false);
    expect(root("null").array()).toBe(false);
    expect(root("null").texts().length).toBe(0);
    expect(problems.errors.length).toBe(0);
  });

  it("counts beyond 32 bits are the largest that fits", () => {
    expect(root("4294967296").count(0, 0)).toBe(i32.MAX_VALUE);
    expect(root("-5000000000").count(0, -1e15)).toBe(i32.MIN_VALUE);
    expect(problems.errors.length).toBe(0);
    expect(root("-1").count(4, 0)).toBe(4);
    expect(problemsText(problems.errors)).toBe(": must be a whole number, at least 0");
  });

  it("strict fields: unknown ones, and those given twice", () => {
    root('{"a":1,"b":2,"a":3,"c":4}').fields(["a", "b"]);
    expect(problemsText(problems.errors)).toBe("a: given more than once\nc: unknown field");
  });

  it("tolerant fields warn only", () => {
    root('{"a":1,"c":4}').fields(["a"], true);
    expect(problems.errors.length).toBe(0);
    expect(problemsText(problems.warnings)).toBe("c: unknown field, ignored");
  });

  it("of a member given twice the last counts", () => {
    expect(root('{"a":1,"a":2}').get("a").int(0, 0, 9)).toBe(2);
  });

  it("strings and words", () => {
    expect(root("5").text("x")).toBe("x");
    expect(problemsText(problems.errors)).toBe(": must be a string");
    expect(root('"b"').oneOf(["a", "b", "c"])).toBe("b");
    expect(root('"d"').oneOf(["a", "b", "c"])).toBe("a");
    expect(problemsText(problems.errors)).toBe(': must be a, b or c, got "d"');
    root('["x",1,"y"]').texts();
    expect(problemsText(problems.errors)).toBe("[1]: must be a string");
  });

  it("keeps a hundred problems and says that there are more", () => {
    problems = new Problems();
    for (let i = 0; i < 1000; i++) problems.error("p", "m");
    expect(problems.errors.length).toBe(101);
    expect(problems.errors[100].message).toBe("further problems are left out");
  });
});
