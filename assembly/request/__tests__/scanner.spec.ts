// JSON as RFC 8259 has it, in UTF-8, and nothing else: the sidecar forwards no body that was not read here to its end (DESIGN, decision 5).
import { ScanError, ShapeId } from "../index";
import { MAX_DEPTH } from "../scanner";
import { begin, everything, feed, firstBadCut, joined, octets, read, readCut, repeated, scanner, utf8, view } from "./support";

function allow(text: string): void {
  expect(read(utf8(text))).toBe(ScanError.None, text);
  expect(scanner.offset).toBe(<u32>utf8(text).length, text);
}

function refuse(text: string, error: ScanError, offset: u32): void {
  expect(read(utf8(text))).toBe(error, text);
  expect(scanner.offset).toBe(offset, text);
}

function refuseBytes(text: string, error: ScanError, offset: u32): void {
  expect(read(octets(text))).toBe(error, text);
  expect(scanner.offset).toBe(offset, text);
}

describe("values", () => {
  it("literals", () => {
    allow("null");
    allow("true");
    allow("false");
  });

  it("numbers", () => {
    const good: StaticArray<string> = [
      "0", "-0", "7", "10", "-10", "1234567890", "0.0", "-0.5", "3.25", "10.010", "0e0", "0E0", "0e+0", "-0e-0", "1e5", "1E5", "1e+5", "1e-5", "1.5E+10", "2.50e007",
      "123456789012345678901234567890", "1e400", "-1e-400", "0.000000000000000000000000000000000000000000000001",
    ];
    for (let i = 0; i < good.length; i++) {
      allow(good[i]);
      allow("[" + good[i] + "]");
      allow('{"a":' + good[i] + "}");
      allow(" \t" + good[i] + "\r\n");
    }
  });

  it("strings", () => {
    const good: StaticArray<string> = ['""', '"a"', '" "', '"\u007f"', '"\u0080"', '"\u2028\u2029"', '"\uffff"', '"\ufeff"', '"\u{10ffff}"', '"/"', '"\\""', '"\\\\"', '"\\/"', '"\\b\\f\\n\\r\\t"', '"\\u0000"', '"\\u00e9\\u20AC"', '"\\ud83d\\ude00"', '"\\\\u0041"'];
    for (let i = 0; i < good.length; i++) {
      allow(good[i]);
      allow("[" + good[i] + "]");
      allow("{" + good[i] + ":" + good[i] + "}");
    }
  });

  it("strings with unpaired surrogates in escapes are legal", () => {
    allow('"\\ud800"');
    allow('"\\udc00"');
    allow('"\\ud800\\ud800"');
    allow('"\\udc00\\ud800"');
    allow('"\\ud800\\u0041"');
    allow('"\\ud800x"');
    allow('"\\ud800\\n"');
    allow('{"\\udfff":1}');
  });

  it("arrays and objects", () => {
    allow("[]");
    allow("{}");
    allow("[[]]");
    allow("[{}]");
    allow("[[],[],{}]");
    allow("[1,2,3]");
    allow('[null,true,false,0,"",[],{}]');
    allow('{"a":{},"b":[],"c":{"d":[{"e":null}]}}');
    allow('{"":0}');
    allow('{"a":1,"a":2}');
  });

  it("white space wherever it may stand, all four kinds of it", () => {
    allow(' \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n');
    allow(' \t\r\n{ \t\r\n"a" \t\r\n: \t\r\n1 \t\r\n, \t\r\n"b" \t\r\n: \t\r\n{ \t\r\n} \t\r\n} \t\r\n');
    allow("[ ]");
    allow("{\n}");
  });
});

describe("what is no JSON", () => {
  it("nothing at all, with the place where more was due", () => {
    refuse("", ScanError.Empty, 0);
    refuse(" ", ScanError.Empty, 1);
    refuse(" \r\n\t", ScanError.Empty, 4);
    refuseBytes("\xef\xbb\xbf", ScanError.Empty, 3);
    refuseBytes("\xef\xbb\xbf ", ScanError.Empty, 4);
  });

  it("what ends too early", () => {
    const whole = '{"a":[1.5e+1,"b\\u00e9\\n",true,false,null,{"c":-0}]}';
    for (let i = 1; i < whole.length; i++) refuse(whole.substring(0, i), ScanError.Truncated, i);
    allow(whole);
  });

  it("numbers that do not end in a digit", () => {
    const bad: StaticArray<string> = ["-", "1.", "-1.", "0.", "1e", "1E", "1e+", "1e-", "1.5e", "1.5e+"];
    for (let i = 0; i < bad.length; i++) {
      refuse(bad[i], ScanError.Truncated, bad[i].length);
      refuse("[" + bad[i] + "]", ScanError.InvalidJson, bad[i].length + 1);
      refuse("[" + bad[i] + " ]", ScanError.InvalidJson, bad[i].length + 1);
      refuse("[" + bad[i] + ",1]", ScanError.InvalidJson, bad[i].length + 1);
    }
  });

  it("numbers of other languages", () => {
    refuse("01", ScanError.InvalidJson, 1);
    refuse("-01", ScanError.InvalidJson, 2);
    refuse("00", ScanError.InvalidJson, 1);
    refuse("+1", ScanError.InvalidJson, 0);
    refuse(".5", ScanError.InvalidJson, 0);
    refuse("-.5", ScanError.InvalidJson, 1);
    refuse("--1", ScanError.InvalidJson, 1);
    refuse("1-", ScanError.InvalidJson, 1);
    refuse("1+1", ScanError.InvalidJson, 1);
    refuse("1.2.3", ScanError.InvalidJson, 3);
    refuse("1.e5", ScanError.InvalidJson, 2);
    refuse("1.-5", ScanError.InvalidJson, 2);
    refuse("1e5.5", ScanError.InvalidJson, 3);
    refuse("1ee5", ScanError.InvalidJson, 2);
    refuse("1e+-5", ScanError.InvalidJson, 3);
    refuse("1e5e5", ScanError.InvalidJson, 3);
    refuse("0x10", ScanError.InvalidJson, 1);
    refuse("1_000", ScanError.InvalidJson, 1);
    refuse("1f", ScanError.InvalidJson, 1);
    refuse("1L", ScanError.InvalidJson, 1);
    refuse("NaN", ScanError.InvalidJson, 0);
    refuse("Infinity", ScanError.InvalidJson, 0);
    refuse("-Infinity", ScanError.InvalidJson, 1);
    refuse("[1 2]", ScanError.InvalidJson, 3);
    refuse("1\u0000", ScanError.InvalidJson, 1);
  });

  it("literals in another spelling", () => {
    refuse("nul", ScanError.Truncated, 3);
    refuse("tru", ScanError.Truncated, 3);
    refuse("fals", ScanError.Truncated, 4);
    refuse("nulL", ScanError.InvalidJson, 3);
    refuse("Null", ScanError.InvalidJson, 0);
    refuse("TRUE", ScanError.InvalidJson, 0);
    refuse("True", ScanError.InvalidJson, 0);
    refuse("nu ll", ScanError.InvalidJson, 2);
    refuse("truth", ScanError.InvalidJson, 3);
    refuse("falsely", ScanError.InvalidJson, 5);
    refuse("nulll", ScanError.InvalidJson, 4);
    refuse("truefalse", ScanError.InvalidJson, 4);
    refuse("[true1]", ScanError.InvalidJson, 5);
    refuse("undefined", ScanError.InvalidJson, 0);
    refuse("tr\u0000e", ScanError.InvalidJson, 2);
    refuse("null\u0000", ScanError.InvalidJson, 4);
  });

  it("escapes that there are not", () => {
    for (let c = 0; c < 128; c++) {
      if ('"\\/bfnrtu'.indexOf(String.fromCharCode(c)) >= 0) continue;
      refuse('"\\' + String.fromCharCode(c) + '"', ScanError.InvalidJson, 2);
    }
    refuse('"\\u"', ScanError.InvalidJson, 3);
    refuse('"\\u1"', ScanError.InvalidJson, 4);
    refuse('"\\u12"', ScanError.InvalidJson, 5);
    refuse('"\\u123"', ScanError.InvalidJson, 6);
    refuse('"\\u123g"', ScanError.InvalidJson, 6);
    refuse('"\\u+123"', ScanError.InvalidJson, 3);
    refuse('"\\u 123"', ScanError.InvalidJson, 3);
    refuse('"\\u{41}"', ScanError.InvalidJson, 3);
    refuse('"\\u12@4"', ScanError.InvalidJson, 5);
    refuse('"\\u12`4"', ScanError.InvalidJson, 5);
    refuse('"\\u12G4"', ScanError.InvalidJson, 5);
    refuse('"\\u12:4"', ScanError.InvalidJson, 5);
    refuse('"\\u12/4"', ScanError.InvalidJson, 5);
    refuse('"\\U0041"', ScanError.InvalidJson, 2);
    refuse('"\\x41"', ScanError.InvalidJson, 2);
    refuse('"\\\'"', ScanError.InvalidJson, 2);
    refuse('"\\', ScanError.Truncated, 2);
    refuse('"\\ud83d\\', ScanError.Truncated, 8);
    refuse('"\\ud83d\\x"', ScanError.InvalidJson, 8);
    refuse('{"a\\q":1}', ScanError.InvalidJson, 4);
  });

  it("control characters in strings, in front and behind sixteen bytes", () => {
    for (let c = 0; c < 32; c++) {
      const control = String.fromCharCode(c);
      refuse('"' + control + '"', ScanError.InvalidJson, 1);
      refuse('"abcdefghijklmnopqrstuvwxyz' + control + '"', ScanError.InvalidJson, 27);
      refuse('"abcdefghijklmnopqrstuvwxyz' + control + 'bcdefghijklmnopqrstuvwxyz"', ScanError.InvalidJson, 27);
      refuse('{"a' + control + '":1}', ScanError.InvalidJson, 3);
      if (c == 9 || c == 10 || c == 13) continue;
      refuse(control, ScanError.InvalidJson, 0);
      refuse("[" + control + "]", ScanError.InvalidJson, 1);
      refuse("[1" + control + "]", ScanError.InvalidJson, 2);
      refuse("{" + control + "}", ScanError.InvalidJson, 1);
      refuse('{"a"' + control + ":1}", ScanError.InvalidJson, 4);
      refuse('{"a":' + control + "1}", ScanError.InvalidJson, 5);
      refuse('{"a":1}' + control, ScanError.InvalidJson, 7);
    }
  });

  it("white space that JSON does not know", () => {
    refuse("\u000b1", ScanError.InvalidJson, 0);
    refuse("\u000c1", ScanError.InvalidJson, 0);
    refuseBytes("\xa01", ScanError.InvalidUtf8, 0);
    refuse("\u00a01", ScanError.InvalidUtf8, 0);
    refuse("[1,\u20282]", ScanError.InvalidUtf8, 3);
  });

  it("commas too many", () => {
    refuse("[,]", ScanError.InvalidJson, 1);
    refuse("[1,]", ScanError.InvalidJson, 3);
    refuse("[1,,2]", ScanError.InvalidJson, 3);
    refuse("[,1]", ScanError.InvalidJson, 1);
    refuse("[1, ]", ScanError.InvalidJson, 4);
    refuse("{,}", ScanError.InvalidJson, 1);
    refuse('{"a":1,}', ScanError.InvalidJson, 7);
    refuse('{"a":1, }', ScanError.InvalidJson, 8);
    refuse('{"a":1,,"b":2}', ScanError.InvalidJson, 7);
    refuse('{,"a":1}', ScanError.InvalidJson, 1);
    refuse(",", ScanError.InvalidJson, 0);
    refuse("1,", ScanError.InvalidJson, 1);
  });

  it("brackets that do not fit", () => {
    refuse("]", ScanError.InvalidJson, 0);
    refuse("}", ScanError.InvalidJson, 0);
    refuse("[}", ScanError.InvalidJson, 1);
    refuse("{]", ScanError.InvalidJson, 1);
    refuse("[1}", ScanError.InvalidJson, 2);
    refuse('{"a":1]', ScanError.InvalidJson, 6);
    refuse("[[]", ScanError.Truncated, 3);
    refuse("[]]", ScanError.InvalidJson, 2);
    refuse("{}}", ScanError.InvalidJson, 2);
    refuse('[{"a":[}]', ScanError.InvalidJson, 7);
  });

  it("members that are none", () => {
    refuse('{"a"}', ScanError.InvalidJson, 4);
    refuse('{"a",1}', ScanError.InvalidJson, 4);
    refuse('{"a" "b"}', ScanError.InvalidJson, 5);
    refuse('{"a"::1}', ScanError.InvalidJson, 5);
    refuse('{"a":}', ScanError.InvalidJson, 5);
    refuse('{"a":1 "b":2}', ScanError.InvalidJson, 7);
    refuse('{"a":1:2}', ScanError.InvalidJson, 6);
    refuse("{a:1}", ScanError.InvalidJson, 1);
    refuse("{'a':1}", ScanError.InvalidJson, 1);
    refuse("{1:1}", ScanError.InvalidJson, 1);
    refuse("{null:1}", ScanError.InvalidJson, 1);
    refuse("{[]:1}", ScanError.InvalidJson, 1);
    refuse('["a":1]', ScanError.InvalidJson, 4);
    refuse('{"a":1,2}', ScanError.InvalidJson, 7);
    refuse("{:1}", ScanError.InvalidJson, 1);
  });

  it("something behind the end", () => {
    refuse("1 2", ScanError.InvalidJson, 2);
    refuse("{} {}", ScanError.InvalidJson, 3);
    refuse("{}\n{}", ScanError.InvalidJson, 3);
    refuse('""""', ScanError.InvalidJson, 2);
    refuse("null,", ScanError.InvalidJson, 4);
    refuse("{}x", ScanError.InvalidJson, 2);
    refuse("{}\u0000", ScanError.InvalidJson, 2);
    refuse("[]//", ScanError.InvalidJson, 2);
    refuseBytes("{}\xef\xbb\xbf", ScanError.InvalidJson, 2);
  });

  it("comments and other texts", () => {
    refuse("// x\n{}", ScanError.InvalidJson, 0);
    refuse("/* x */{}", ScanError.InvalidJson, 0);
    refuse("{/**/}", ScanError.InvalidJson, 1);
    refuse("# x", ScanError.InvalidJson, 0);
    refuse("'a'", ScanError.InvalidJson, 0);
    refuse("<html>", ScanError.InvalidJson, 0);
    refuse("a: b", ScanError.InvalidJson, 0);
    refuse("\u0000", ScanError.InvalidJson, 0);
    refuse('data: {"a":1}', ScanError.InvalidJson, 0);
  });
});

describe("UTF-8", () => {
  it("a byte order mark in front is skipped, and counts in offsets", () => {
    expect(read(octets("\xef\xbb\xbf{}"))).toBe(ScanError.None);
    expect(scanner.reader.objectStart).toBe(3);
    expect(scanner.reader.objectEnd).toBe(5);
    expect(read(octets("\xef\xbb\xbf \t1"))).toBe(ScanError.None);
    refuseBytes("\xef\xbb\xbf{]", ScanError.InvalidJson, 4);
  });

  it("a byte order mark elsewhere, twice or in part is none", () => {
    refuseBytes("\xef\xbb\xbf\xef\xbb\xbf{}", ScanError.InvalidUtf8, 3);
    refuseBytes(" \xef\xbb\xbf{}", ScanError.InvalidUtf8, 1);
    refuseBytes("[\xef\xbb\xbf]", ScanError.InvalidUtf8, 1);
    refuseBytes("\xef{}", ScanError.InvalidUtf8, 1);
    refuseBytes("\xef\xbb{}", ScanError.InvalidUtf8, 2);
    refuseBytes("\xef", ScanError.Truncated, 1);
    refuseBytes("\xef\xbb", ScanError.Truncated, 2);
    refuseBytes("\xef\xbb ", ScanError.InvalidUtf8, 2);
    refuseBytes("\xef \xbf{}", ScanError.InvalidUtf8, 1);
  });

  it("UTF-16 and UTF-32, with and without a mark, are refused", () => {
    expect(read(octets("\xff\xfe{\x00}\x00"))).toBe(ScanError.InvalidUtf8);
    expect(read(octets("\xfe\xff\x00{\x00}"))).toBe(ScanError.InvalidUtf8);
    expect(read(octets("{\x00}\x00"))).toBe(ScanError.InvalidJson);
    expect(read(octets("\x00{\x00}"))).toBe(ScanError.InvalidJson);
    expect(read(octets("\xff\xfe\x00\x00{\x00\x00\x00"))).toBe(ScanError.InvalidUtf8);
    expect(read(octets("\x00\x00\xfe\xff\x00\x00\x00{"))).toBe(ScanError.InvalidJson);
    expect(read(octets("{\x00\x00\x00"))).toBe(ScanError.InvalidJson);
    expect(read(octets("1\x00"))).toBe(ScanError.InvalidJson);
  });

  it("the first and last character of every length", () => {
    const good: StaticArray<string> = ["\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf1\x80\x80\x80", "\xf4\x8f\xbf\xbf"];
    for (let i = 0; i < good.length; i++) {
      for (let pad = 0; pad < 20; pad++) {
        const body = octets('"' + "a".repeat(pad) + good[i] + 'b"');
        expect(read(body)).toBe(ScanError.None, i.toString());
        expect(firstBadCut(body, ShapeId.Other)).toBe(-1, i.toString());
      }
    }
  });

  it("overlong forms, surrogates, what lies above U+10FFFF and stray bytes, with the byte that is wrong", () => {
    const bad: StaticArray<string> = [
      "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc0\xaf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf7\xbf\xbf\xbf",
      "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xfe", "\xff", "\xc2\xc2\x80", "\xe1\x80\xc0", "\xf1\x80\x80\x7f", "\xe1\xe1", "\xc3a", "\xe4\xb8a", "\xf0\x9f\x98a",
    ];
    const place: StaticArray<i32> = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 1, 2, 3];
    for (let i = 0; i < bad.length; i++) {
      for (let pad = 0; pad < 20; pad++) {
        refuseBytes('"' + "a".repeat(pad) + bad[i] + 'cdefghijklmnopqrstuvwxyz"', ScanError.InvalidUtf8, 1 + pad + place[i]);
        refuseBytes('{"' + "a".repeat(pad) + bad[i] + '":1}', ScanError.InvalidUtf8, 2 + pad + place[i]);
      }
      expect(firstBadCut(octets('["\xc3\xa9\xe2\x82\xac' + bad[i] + '"]'), ShapeId.Other)).toBe(-1, i.toString());
    }
  });

  it("characters that are cut short: by the string's end, by an escape, by the body's end", () => {
    const short: StaticArray<string> = ["\xc3", "\xe2", "\xe2\x82", "\xf0", "\xf0\x9f", "\xf0\x9f\x98"];
    for (let i = 0; i < short.length; i++) {
      const n = <u32>short[i].length;
      refuseBytes('"' + short[i] + '"', ScanError.InvalidUtf8, 1 + n);
      refuseBytes('"' + short[i] + '\\n"', ScanError.InvalidUtf8, 1 + n);
      refuseBytes('"' + short[i] + '\\ude00"', ScanError.InvalidUtf8, 1 + n);
      refuseBytes('"' + short[i] + '\n"', ScanError.InvalidUtf8, 1 + n);
      refuseBytes('"' + short[i], ScanError.Truncated, 1 + n);
      expect(firstBadCut(octets('"x' + short[i] + '"'), ShapeId.Other)).toBe(-1, i.toString());
    }
  });

  it("bytes above ASCII outside of strings", () => {
    refuseBytes("\x80", ScanError.InvalidUtf8, 0);
    refuseBytes("[\xc3\xa9]", ScanError.InvalidUtf8, 1);
  });

  it("long text of other scripts", () => {
    const body = joined(utf8('{"a":"'), repeated("Größe 大小 размер 📏 ", 2000), utf8('"}'));
    expect(read(body)).toBe(ScanError.None);
    body[body.length - 3] = 0xff;
    expect(read(body)).toBe(ScanError.InvalidUtf8);
    expect(scanner.offset).toBe(<u32>body.length - 3);
    const cut = body.length / 2;
    readCut(body, ShapeId.Other, cut, cut + 1);
    expect(scanner.offset).toBe(<u32>body.length - 3);
  });
});

describe("depth", () => {
  it("is read down to the limit and no further, of arrays and objects alike", () => {
    const most = <i32>MAX_DEPTH;
    expect(read(joined(repeated("[", most), repeated("]", most)))).toBe(ScanError.None);
    expect(read(joined(repeated('{"a":', most - 1), utf8("{}"), repeated("}", most - 1)))).toBe(ScanError.None);
    expect(read(joined(repeated('[{"a":', most / 2), utf8("1"), repeated("}]", most / 2)))).toBe(ScanError.None);
    expect(read(joined(repeated("[", most + 1), repeated("]", most + 1)))).toBe(ScanError.TooDeep);
    expect(scanner.offset).toBe(most);
    expect(read(joined(repeated('{"a":', most), utf8("{")))).toBe(ScanError.TooDeep);
    expect(scanner.offset).toBe(most * 5);
  });

  it("brackets are told apart on every level", () => {
    const most = <i32>MAX_DEPTH;
    for (let n = 1; n < 200; n++) {
      const open = repeated("[", n);
      expect(read(joined(open, utf8("}")))).toBe(ScanError.InvalidJson);
      expect(scanner.offset).toBe(n);
      expect(read(joined(open, utf8("{}"), repeated("]", n)))).toBe(ScanError.None);
    }
    // }]}]}]: every other closing bracket is an object's.
    const body = joined(repeated('[{"a":', most / 2), utf8("1"), repeated("}]", most / 2));
    body[body.length - 1002] = 0x5d;
    expect(read(body)).toBe(ScanError.InvalidJson);
    expect(scanner.offset).toBe(<u32>body.length - 1002);
  });

  it("a level that was left is entered anew", () => {
    expect(read(joined(utf8("["), repeated("[[[]]],", 5000), utf8("1]")))).toBe(ScanError.None);
  });
});

describe("pieces", () => {
  it("every cut of a body with everything in it", () => {
    const text = ' {"model" : "m\\u0031\\ud83d\\ude00é", "n":2,"messages":[{"role":"user","content":[{"type":"text","text":"Grüße\\n"},{"type":"image_url","image_url":{"url":"http://a/b.png","detail":"low"},"uuid":"u"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"x","f":-1.5e+3,"g":[true,false,null,{}]}]}],"tools":[{"a":{"b":[1,2]}}],"kv_transfer\\u005fparams":{"a":"}"},"sampling_params":{"n":3,"extra_args":{"ec_transfer_params":[]}}} ';
    expect(firstBadCut(utf8(text), ShapeId.Chat)).toBe(-1);
  });

  it("every cut into three of small bodies", () => {
    expect(firstBadCut(utf8('{"model":"é","prompt":["ab\\u00e9","\\ud800c"],"n":1e0}'), ShapeId.Completions, true)).toBe(-1);
    expect(firstBadCut(utf8('{"token_ids":[1,22,4294967295],"stream":true}'), ShapeId.Generate, true)).toBe(-1);
    expect(firstBadCut(utf8('{"token_ids":[1,-22],"model":null}'), ShapeId.Generate, true)).toBe(-1);
    expect(firstBadCut(octets('\xef\xbb\xbf{"a":"\xf0\x9f\x98\x80"}'), ShapeId.Other, true)).toBe(-1);
    expect(firstBadCut(utf8("-12.5e-3"), ShapeId.Other, true)).toBe(-1);
    expect(firstBadCut(utf8("[true,false,null]"), ShapeId.Other, true)).toBe(-1);
  });

  it("every cut of bodies that are broken: the same error at the same place", () => {
    const bad: StaticArray<string> = ['{"a":01}', '{"a":1e}', '["\\u12x4"]', '["\\ud800\\q"]', '{"a":tru}', '{"a":1,}', '["a\tb"]', '{"a":"b', "[1]]", '{"model":"x","n":{"n":]', "nulx", ""];
    for (let i = 0; i < bad.length; i++) expect(firstBadCut(utf8(bad[i]), ShapeId.Chat, true)).toBe(-1, bad[i]);
  });

  it("empty pieces change nothing", () => {
    const body = utf8('{"a":"\u00e9"}');
    begin(ShapeId.Other);
    for (let i = 0; i < body.length; i++) {
      feed(body, i, i);
      feed(body, i, i + 1);
      feed(body, i, i);
    }
    view.take(scanner);
    expect(view.error).toBe(ScanError.None);
  });

  it("pieces behind an error change nothing", () => {
    begin(ShapeId.Other);
    feed(utf8("{]"), 0, 2);
    feed(utf8("{}"), 0, 2);
    feed(utf8('"'), 0, 1);
    view.take(scanner);
    expect(view.error).toBe(ScanError.InvalidJson);
    expect(scanner.offset).toBe(1);
  });
});

describe("the next body", () => {
  it("is read as if it were the first, whatever the last one left behind", () => {
    const body = utf8('{"model":"a","messages":[{"role":"user","content":"\\ud83d\\ude00 and some more text, long enough for blocks"}],"tools":[1]}');
    read(body, ShapeId.Chat);
    const fresh = everything();
    const left: StaticArray<string> = [
      '{"model":"x","messages":[{"role":"user","content":"abc\\ud83d',
      '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a',
      '{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"deep',
      '{"tools":[{"cache_control":{"a',
      '{"tools":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1',
      '{"sampling_params":{"n":7,"extra_args":{"kv_transfer_params":{',
      '{"n":9,"best_of":9,"prompt_logprobs":1,"echo":true,"logprobs":1,"background":true,"previous_response_id":"r"}',
      '{"prompt":[1,2,{',
      '"\xc3',
      "[[[[[[",
    ];
    for (let i = 0; i < left.length; i++) {
      for (let shape: u32 = 0; shape <= <u32>ShapeId.Generate; shape++) {
        read(octets(left[i]), shape);
        read(body, ShapeId.Chat);
        expect(everything()).toBe(fresh, left[i]);
      }
    }
  });
});

describe("what the top level is", () => {
  it("an object, with its place", () => {
    read(utf8(' {"a":{}} '));
    expect(scanner.reader.isObject).toBe(1);
    expect(scanner.reader.objectStart).toBe(1);
    expect(scanner.reader.objectEnd).toBe(9);
  });

  it("anything else is none, and holds no prompt", () => {
    const others: StaticArray<string> = ["[]", '[{"messages":[]}]', '"messages"', "1", "null", "true"];
    for (let i = 0; i < others.length; i++) {
      expect(read(utf8(others[i]), ShapeId.Chat)).toBe(ScanError.None);
      expect(scanner.reader.isObject).toBe(0, others[i]);
      expect(view.hasTokens).toBe(false, others[i]);
      expect(scanner.reader.memberCount).toBe(0, others[i]);
    }
  });
});
