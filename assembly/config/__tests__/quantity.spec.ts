import { JsonDoc } from "../json";
import { Node } from "../node";
import { Problems } from "../problems";
import { parseDuration, parseQuantity, readDuration, readQuantity } from "../quantity";

function isNone(value: f64): bool {
  return value != value;
}

describe("quantities", () => {
  it("with every suffix", () => {
    expect(parseQuantity("0")).toBe(0);
    expect(parseQuantity("1024")).toBe(1024);
    expect(parseQuantity("1.5")).toBe(1.5);
    expect(parseQuantity(".5")).toBe(0.5);
    expect(parseQuantity("5.")).toBe(5);
    expect(parseQuantity("500m")).toBe(0.5);
    expect(parseQuantity("2k")).toBe(2000);
    expect(parseQuantity("1M")).toBe(1000000);
    expect(parseQuantity("1G")).toBe(1e9);
    expect(parseQuantity("1Ki")).toBe(1024);
    expect(parseQuantity("64Mi")).toBe(67108864);
    expect(parseQuantity("1Gi")).toBe(1073741824);
    expect(parseQuantity("1Ei")).toBe(1152921504606846976);
    expect(parseQuantity("1e3")).toBe(1000);
    expect(parseQuantity("1E3")).toBe(1000);
    expect(parseQuantity("1E")).toBe(1e18);
    expect(parseQuantity("-1Gi")).toBe(-1073741824);
    expect(parseQuantity("+1")).toBe(1);
  });

  it("nothing else", () => {
    const bad: StaticArray<string> = ["", "-", "x", "1x", "1K", "1ki", "1Kib", "1 Gi", "1.2.3", "1e", "1e+", "e3", "1e9999", "Gi", "1,5", "0x10"];
    for (let i = 0; i < bad.length; i++) expect(isNone(parseQuantity(bad[i]))).toBe(true, bad[i]);
  });

  it("are read from text and from numbers, rounded up, and are not negative", () => {
    const texts: StaticArray<string> = ['"1Gi"', "1024", '"100m"', '"-1"', "-1", '"x"', "true", "null", "1e400"];
    const values: StaticArray<f64> = [1073741824, 1024, 1, 7, 7, 7, 7, 7, 7];
    const errors: StaticArray<i32> = [0, 0, 0, 1, 1, 1, 1, 0, 1];
    for (let i = 0; i < texts.length; i++) {
      const problems = new Problems();
      expect(readQuantity(Node.root(JsonDoc.parse(texts[i]), 0, "", problems), 7)).toBe(values[i], texts[i]);
      expect(problems.errors.length).toBe(errors[i], texts[i]);
    }
  });
});

describe("durations", () => {
  it("with every unit, in milliseconds", () => {
    expect(parseDuration("60s")).toBe(60000);
    expect(parseDuration("0s")).toBe(0);
    expect(parseDuration("0")).toBe(0);
    expect(parseDuration("1m30s")).toBe(90000);
    expect(parseDuration("1.5h")).toBe(5400000);
    expect(parseDuration("200ms")).toBe(200);
    expect(parseDuration("500us")).toBe(0.5);
    expect(parseDuration("1000000ns")).toBe(1);
    expect(parseDuration("-1s")).toBe(-1000);
  });

  it("nothing else", () => {
    const bad: StaticArray<string> = ["", "60", "s", "1d", "1 s", "1s ", "1s-1s", "1m30", "x", "-", "1.2.3s"];
    for (let i = 0; i < bad.length; i++) expect(isNone(parseDuration(bad[i]))).toBe(true, bad[i]);
  });

  it("are text, and not negative", () => {
    const problems = new Problems();
    expect(readDuration(Node.root(JsonDoc.parse("60"), 0, "", problems), 5)).toBe(5);
    expect(readDuration(Node.root(JsonDoc.parse('"-1s"'), 0, "", problems), 5)).toBe(5);
    expect(problems.errors.length).toBe(2);
    expect(problems.errors[1].message.includes("must be non-negative")).toBe(true);
  });
});
