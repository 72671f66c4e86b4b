// Texts that are written piece by piece: numbers, and JSON strings that fit into a header's value.
import { Bytes, Writer } from "../bytes";

const w = new Writer(1);

function text(): string {
  return String.UTF8.decodeUnsafe(w.at, w.size);
}

function number(value: i64): string {
  w.clear();
  w.number(value);
  return text();
}

function decimal(value: f64): string {
  w.clear();
  w.decimal(value);
  return text();
}

/** One byte per character. */
function json(bytes: string): string {
  const octets = new StaticArray<u8>(bytes.length);
  for (let i = 0; i < bytes.length; i++) octets[i] = <u8>bytes.charCodeAt(i);
  w.clear();
  w.jsonString(changetype<usize>(octets), octets.length);
  return text();
}

/** One byte per character. */
function percent(bytes: string): string {
  const octets = new StaticArray<u8>(bytes.length);
  for (let i = 0; i < bytes.length; i++) octets[i] = <u8>bytes.charCodeAt(i);
  w.clear();
  w.percent(changetype<usize>(octets), octets.length);
  return text();
}

describe("one word of printable ASCII", () => {
  it("keeps what is one, and writes every other byte as %XX", () => {
    expect(percent("")).toBe("");
    expect(percent("org/model-7B:v1.0_x@=,")).toBe("org/model-7B:v1.0_x@=,");
    expect(percent(' "%\\\x00\x1f\x7f\x80\xff')).toBe("%20%22%25%5C%00%1F%7F%80%FF");
    let all = "";
    for (let i = 0; i < 256; i++) all += String.fromCharCode(i);
    expect(percent(all).length).toBe(256 + 2 * (33 + 3 + 129));
  });
});

describe("a writer", () => {
  it("grows as it must, and is used again", () => {
    const small = new Writer(1);
    for (let i = 0; i < 1000; i++) {
      small.byte(0x61 + (i % 26));
      small.text("é€😀");
      const b = new Bytes("xyz");
      small.bytes(b.at, b.size);
    }
    expect(small.size).toBe(1000 * (1 + 9 + 3));
    const whole = String.UTF8.decodeUnsafe(small.at, small.size);
    for (let i = 0; i < 1000; i++) if (whole.substr(i * 8, 8) != String.fromCharCode(0x61 + (i % 26)) + "é€😀xyz") expect(i).toBe(-1);
    const at = small.at;
    small.clear();
    small.text("again");
    expect(small.at == at).toBe(true);
    expect(String.UTF8.decodeUnsafe(small.at, small.size)).toBe("again");
    small.dispose();
  });

  it("of no room at all", () => {
    const none = new Writer(0);
    none.text("abc");
    none.number(12);
    expect(String.UTF8.decodeUnsafe(none.at, none.size)).toBe("abc12");
  });
});

describe("numbers", () => {
  it("whole ones, to the last", () => {
    expect(number(0)).toBe("0");
    expect(number(7)).toBe("7");
    expect(number(-7)).toBe("-7");
    expect(number(10)).toBe("10");
    expect(number(1234567890)).toBe("1234567890");
    expect(number(i64.MAX_VALUE)).toBe("9223372036854775807");
    expect(number(i64.MIN_VALUE)).toBe("-9223372036854775808");
    let n: i64 = 1;
    let want = "1";
    for (let i = 0; i < 18; i++) {
      expect(number(n)).toBe(want);
      expect(number(n - 1)).toBe(i ? "9".repeat(i) : "0");
      n *= 10;
      want += "0";
    }
  });

  it("decimals, to three places", () => {
    expect(decimal(0)).toBe("0");
    expect(decimal(-0.0)).toBe("0");
    expect(decimal(1)).toBe("1");
    expect(decimal(1.5)).toBe("1.500");
    expect(decimal(0.25)).toBe("0.250");
    expect(decimal(0.001)).toBe("0.001");
    expect(decimal(0.0004)).toBe("0");
    expect(decimal(0.0005)).toBe("0.001");
    expect(decimal(0.9996)).toBe("1");
    expect(decimal(12.3456)).toBe("12.346");
    expect(decimal(-2.5)).toBe("-2.500");
    expect(decimal(1234567.891)).toBe("1234567.891");
  });

  it("what JSON has not is null, what is too large is a number still", () => {
    expect(decimal(NaN)).toBe("null");
    expect(decimal(Infinity)).toBe("null");
    expect(decimal(-Infinity)).toBe("null");
    expect(decimal(1e300).length).toBeGreaterThan(10);
    expect(decimal(-1e300).startsWith("-")).toBe(true);
    // No minus in front of nothing.
    expect(decimal(-0.0001)).toBe("0");
  });
});

describe("JSON strings", () => {
  it("are ASCII, and escaped", () => {
    expect(json("")).toBe('""');
    expect(json("abc /'")).toBe("\"abc /'\"");
    expect(json('"\\')).toBe('"\\"\\\\"');
    expect(json("\x00\x1f\n\r\t\x7f")).toBe('"\\u0000\\u001f\\u000a\\u000d\\u0009\\u007f"');
    expect(json("\xc3\xa9\xe2\x82\xac")).toBe('"\\u00e9\\u20ac"');
    expect(json("\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf")).toBe('"\\ud83d\\ude00\\udbff\\udfff"');
    expect(json("\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80")).toBe('"\\u0080\\u07ff\\u0800\\uffff\\ud7ff\\ue000\\ud800\\udc00"');
    w.clear();
    w.json('a"é😀');
    expect(text()).toBe('"a\\"\\u00e9\\ud83d\\ude00"');
  });

  it("bytes that are no UTF-8 become U+FFFD, and what follows them is kept", () => {
    const one = '"\\ufffdx"';
    expect(json("\x80x")).toBe(one);
    expect(json("\xbfx")).toBe(one);
    expect(json("\xffx")).toBe(one);
    expect(json("\xc3x")).toBe(one);
    expect(json("\xe2x")).toBe(one);
    expect(json("\xf0x")).toBe(one);
    expect(json("\xe2\x82")).toBe('"\\ufffd\\ufffd"');
    expect(json("\xf0\x9f\x98")).toBe('"\\ufffd\\ufffd\\ufffd"');
    expect(json('\xe2\x82"')).toBe('"\\ufffd\\ufffd\\""');
  });

  it("overlong forms, surrogates and what lies above U+10FFFF are no UTF-8", () => {
    const bad: StaticArray<string> = ["\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf7\xbf\xbf\xbf", "\xf8\x88\x80\x80\x80", "\xfd\xbf\xbf\xbf\xbf\xbf"];
    for (let i = 0; i < bad.length; i++) expect(json("a" + bad[i] + "b")).toBe('"a' + "\\ufffd".repeat(bad[i].length) + 'b"', i.toString());
  });

  it("every two bytes give something that is ASCII and closed", () => {
    for (let a = 0; a < 256; a++) {
      for (let b = 0; b < 256; b += 3) {
        const out = json(String.fromCharCode(a) + String.fromCharCode(b));
        let ascii = out.startsWith('"') && out.endsWith('"') && out.length >= 3;
        for (let i = 0; i < out.length; i++) if (out.charCodeAt(i) < 0x20 || out.charCodeAt(i) > 0x7e) ascii = false;
        if (!ascii) expect(out).toBe("", a.toString() + " " + b.toString());
      }
    }
  });
});
