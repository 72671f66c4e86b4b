// Media parts: which there are, where they stand, how many place holders they take, which are equal (scheduler §4.1; cases 05 to 08).
import { MediaEstimate, ScanError, ShapeId, useEstimate } from "../index";
import { MAX_MEDIA } from "../reader";
import { firstBadCut, joined, keys, keysOf, media, mediaAt, orders, read, readCut, repeated, same, scanner, shared, textOf, useBlocks, utf8, view } from "./support";

class LongVideos extends MediaEstimate {
  videoTokens(): u32 {
    return 6000;
  }
}

const CHAT = ShapeId.Chat;
const RESPONSES = ShapeId.Responses;
const MESSAGES = ShapeId.Messages;

beforeEach(() => {
  useBlocks(4, 1024);
  useEstimate(new MediaEstimate());
});

function parts(list: string): string {
  return '{"messages":[{"role":"user","content":[' + list + "]}]}";
}

/** Types and place holders of the parts in one user message. */
function found(list: string, shape: u32 = CHAT): string {
  expect(read(utf8(parts(list)), shape)).toBe(ScanError.None, list);
  return media();
}

function image(url: string): string {
  return '{"type":"image_url","image_url":{"url":"' + url + '"}}';
}

/** Distinct items in one user message. */
function distinct(list: string): u32 {
  read(utf8(parts(list)), CHAT);
  return view.mmDistinct;
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function base64(bytes: i32[]): string {
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const a = bytes[i];
    const b = i + 1 < bytes.length ? bytes[i + 1] : 0;
    const c = i + 2 < bytes.length ? bytes[i + 2] : 0;
    out += DIGITS.charAt(a >> 2) + DIGITS.charAt(((a & 3) << 4) | (b >> 4));
    out += i + 1 < bytes.length ? DIGITS.charAt(((b & 15) << 2) | (c >> 6)) : "=";
    out += i + 2 < bytes.length ? DIGITS.charAt(c & 63) : "=";
  }
  return out;
}

/** The beginning of a PNG of that size. */
function png(width: u32, height: u32): string {
  const bytes: i32[] = [0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52];
  for (let shift = 24; shift >= 0; shift -= 8) bytes.push(<i32>((width >> shift) & 255));
  for (let shift = 24; shift >= 0; shift -= 8) bytes.push(<i32>((height >> shift) & 255));
  for (let i = 0; i < 40; i++) bytes.push(i);
  return "data:image/png;base64," + base64(bytes);
}

function gif(width: i32, height: i32): string {
  const bytes: i32[] = [0x47, 0x49, 0x46, 0x38, 0x39, 0x61, width & 255, width >> 8, height & 255, height >> 8, 0xf7, 0, 0];
  for (let i = 0; i < 20; i++) bytes.push(i);
  return "data:image/gif;base64," + base64(bytes);
}

/** A JPEG with the usual JFIF header and two tables in front of the frame that tells its size. */
function jpeg(width: i32, height: i32, frame: i32 = 0xc0): string {
  const bytes: i32[] = [0xff, 0xd8, 0xff, 0xe0, 0, 16, 0x4a, 0x46, 0x49, 0x46, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0];
  for (let table = 0; table < 2; table++) {
    bytes.push(0xff);
    bytes.push(0xdb);
    bytes.push(0);
    bytes.push(67);
    for (let i = 0; i < 65; i++) bytes.push(i);
  }
  const tail: i32[] = [0xff, frame, 0, 17, 8, height >> 8, height & 255, width >> 8, width & 255, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1];
  for (let i = 0; i < tail.length; i++) bytes.push(tail[i]);
  return "data:image/jpeg;base64," + base64(bytes);
}

describe("media parts", () => {
  it("S-PX-27 an image without a known size takes 225 place holders; two URLs are different features", () => {
    expect(found(image("https://a.test/1.png"))).toBe("image_url:225");
    expect(view.tokens).toBe(225 + 1);
    const a = keys();
    found(image("https://a.test/2.png"));
    expect(shared(a, keys())).toBe(0);
    found(image("https://a.test/1.png"));
    expect(same(a, keys())).toBe(true);
  });

  it("a video takes 4500", () => {
    expect(found('{"type":"video_url","video_url":{"url":"https://a.test/1.mp4"}}')).toBe("video_url:4500");
    expect(view.tokens).toBe(4500 + 1);
  });

  it("audio takes a quarter of its data and format, or of its URL, at least one", () => {
    expect(found('{"type":"input_audio","input_audio":{"data":"AAAAAAAA","format":"wav"}}')).toBe("input_audio:3");
    expect(found('{"type":"input_audio","input_audio":{"format":"wav","data":"AAAAAAAAA"}}')).toBe("input_audio:3");
    expect(found('{"type":"input_audio","input_audio":{"format":"wav","data":"AAAAAAAAAA"}}')).toBe("input_audio:4");
    expect(found('{"type":"input_audio","input_audio":{"data":"","format":""}}')).toBe("input_audio:1");
    expect(found('{"type":"input_audio"}')).toBe("input_audio:1");
    expect(found('{"type":"audio_url","audio_url":{"url":"12345678"}}')).toBe("audio_url:2");
    expect(found('{"type":"audio_url","audio_url":{"url":null}}')).toBe("audio_url:1");
  });

  it("L9: two audio URLs do not look the same", () => {
    found('{"type":"audio_url","audio_url":{"url":"https://a.test/1.wav"}}');
    const a = keys();
    found('{"type":"audio_url","audio_url":{"url":"https://a.test/2.wav"}}');
    expect(shared(a, keys())).toBe(0);
  });

  it("every kind of content that is media", () => {
    const all =
      image("u") +
      ',{"type":"text","text":"t"},{"type":"audio_url","audio_url":{"url":"u"}},{"type":"video_url","video_url":{"url":"u"}},{"type":"input_audio","input_audio":{"data":"d","format":"f"}},{"type":"image_url","image_url":null,"uuid":"x"},{"type":"image_url","uuid":"y"},{"type":"image_url","image_url":"http://plain"}';
    expect(found(all)).toBe("image_url:225 audio_url:1 video_url:4500 input_audio:1 image_url:225 image_url:225 image_url:225");
    expect(view.mmItems).toBe(7);
  });

  it("what is none", () => {
    const none: StaticArray<string> = [
      '{"type":"text","text":"{\\"type\\":\\"image_url\\",\\"image_url\\":{\\"url\\":\\"u\\"}}"}', '{"type":"text","image_url":{"url":"u"}}', '{"image_url":{"url":"u"}}', '{"type":"IMAGE_URL","image_url":{"url":"u"}}', '{"type":["image_url"],"image_url":{"url":"u"}}',
      '{"type":"file","file":{"type":"image_url","image_url":{"url":"u"}}}', '[{"type":"image_url","image_url":{"url":"u"}}]', '"image_url"', '{"type":"image_url\\u0000","image_url":{"url":"u"}}',
    ];
    for (let i = 0; i < none.length; i++) {
      expect(found(none[i])).toBe("", none[i]);
      expect(view.mmItems).toBe(0);
    }
    const elsewhere: StaticArray<string> = [
      '{"metadata":[' + image("u") + "]}", '{"messages":[' + image("u") + "]}", '{"messages":[{"role":"user","parts":[' + image("u") + "]}]}", '{"messages":[{"role":"user","content":' + image("u") + "}]}", '{"messages":{"content":[' + image("u") + "]}}",
      '{"tools":[{"content":[' + image("u") + "]}]}", '{"prompt":[' + image("u") + "]}", '{"input":[{"role":"user","content":[' + image("u") + "]}]}",
    ];
    for (let i = 0; i < elsewhere.length; i++) {
      expect(read(utf8(elsewhere[i]), CHAT)).toBe(ScanError.None, elsewhere[i]);
      expect(media()).toBe("", elsewhere[i]);
    }
  });

  it("S-PX-31 a body that is no chat has no features", () => {
    const body = utf8(parts(image("u")).replace("messages", "prompt"));
    read(body, ShapeId.Completions);
    expect(view.mmItems).toBe(0);
    read(utf8(parts(image("u"))), ShapeId.Completions);
    expect(view.mmItems).toBe(0);
    read(utf8(parts(image("u"))), ShapeId.Generate);
    expect(view.mmItems).toBe(0);
    read(utf8(parts(image("u"))), ShapeId.Other);
    expect(view.mmItems).toBe(0);
  });

  it("in responses an input_image has its URL beside it", () => {
    const body = '{"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a.test/1.png","detail":"low"},{"type":"input_text","text":"t"}]}]}';
    read(utf8(body), RESPONSES);
    expect(media()).toBe("input_image:225");
    const a = keys();
    read(utf8(body.replace("/1.", "/2.")), RESPONSES);
    expect(shared(a, keys())).toBe(0);
    // In chat it is a part that nobody knows.
    expect(found('{"type":"input_image","image_url":"u"}')).toBe("");
  });

  it("in messages the chat's four kinds are media, and Anthropic's own pictures, nested ones too", () => {
    expect(found(image("u"), MESSAGES)).toBe("image_url:225");
    const own = '{"type":"image","source":{"type":"url","url":"https://a.test/1.png"}}';
    expect(found(own, MESSAGES)).toBe("image:225");
    expect(found('{"type":"tool_result","tool_use_id":"t","content":[' + own + "]}", MESSAGES)).toBe("image:225");
    expect(found('{"type":"tool_result","content":[' + own + ',{"type":"text","text":"x"}]},' + own, MESSAGES)).toBe("image:225 image:225");
    expect(view.mmDistinct).toBe(1);
    // In chat it is a part that nobody knows.
    expect(found(own)).toBe("");
  });

  it("an inline picture of messages is as large as its header says, and equal to its equals", () => {
    const own = (data: string): string => '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"' + data.substring(data.indexOf(",") + 1) + '"}}';
    expect(found(own(png(640, 480)), MESSAGES)).toBe("image:300");
    found(own(png(640, 480)) + "," + own(png(640, 480)) + "," + own(png(64, 48)), MESSAGES);
    expect(view.mmItems).toBe(3);
    expect(view.mmDistinct).toBe(2);
  });

  it("a JPEG's frame is found behind segments of any size", () => {
    for (let thumbnail = 0; thumbnail < 70000; thumbnail += 6899) {
      const bytes: i32[] = [0xff, 0xd8];
      for (let left = thumbnail; left > 0; left -= 60000) {
        const size = min(left, 60000) + 2;
        bytes.push(0xff);
        bytes.push(0xe1);
        bytes.push(size >> 8);
        bytes.push(size & 255);
        for (let i = 2; i < size; i++) bytes.push((i * 7) & 255);
      }
      const frame: i32[] = [0xff, 0xff, 0xc2, 0, 17, 8, 0x04, 0x00, 0x08, 0x00, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1];
      for (let i = 0; i < frame.length; i++) bytes.push(frame[i]);
      expect(found(image("data:image/jpeg;base64," + base64(bytes)))).toBe("image_url:2048", thumbnail.toString());
    }
    // Image data without a frame in front of it, a broken segment, no base64: the default.
    expect(found(image("data:image/jpeg;base64," + base64([0xff, 0xd8, 0xff, 0xda, 0, 4, 1, 2, 0xff, 0xc0, 0, 17, 8, 4, 0, 8, 0])))).toBe("image_url:225");
    expect(found(image("data:image/jpeg;base64," + base64([0xff, 0xd8, 0xff, 0xe1, 0, 0, 0xff, 0xc0, 0, 17, 8, 4, 0, 8, 0])))).toBe("image_url:225");
    expect(found(image("data:image/jpeg;base64,/9j/4!AQ"))).toBe("image_url:225");
  });

  it("what stands in a JPEG's segment is stepped over, base64 or not, in whatever pieces it comes (found by the fuzz)", () => {
    const url = jpeg(800, 600);
    const at = url.indexOf("base64,") + 60; // inside the first table
    const body = utf8('{"messages":[{"content":[' + image(url.substring(0, at) + "=*" + url.substring(at + 2)) + "]}]}");
    for (let cut = 0; cut <= body.length; cut++) {
      readCut(body, CHAT, cut, cut);
      expect(mediaAt(0).tokens).toBe(468, cut.toString());
    }
  });

  it("nothing is encoded for the text in front, wherever it stands", () => {
    const all = orders(['"system":[' + image("u") + ',{"type":"text","text":"s"}]', '"messages":[{"role":"user","content":[' + image("v") + "]}]", '"model":"m"'], "{", "}");
    const first = keysOf(all[0], MESSAGES);
    for (let i = 0; i < all.length; i++) {
      expect(same(first, keysOf(all[i], MESSAGES))).toBe(true, all[i]);
      expect(view.mmItems).toBe(1, all[i]);
    }
  });

  it("a part in a part is a medium of its own", () => {
    const list = '{"type":"tool_result","content":[' + image("u") + ',{"type":"text","text":"t"}]},' + image("v");
    const body = utf8(parts(list));
    expect(found(list)).toBe("image_url:225 image_url:225");
    expect(textOf(body, mediaAt(0).start, mediaAt(0).end)).toBe(image("u"));
    expect(textOf(body, mediaAt(1).start, mediaAt(1).end)).toBe(image("v"));
  });
});

describe("where media stand", () => {
  it("spans are the whole parts, braces included", () => {
    const one = '{ "type":"image_url", "image_url":{"url":"}]"} }';
    const two = '{"video_url":{"url":"é"},"type":"video_url"}';
    const body = utf8(parts('{"type":"text","text":"é"} , ' + one + " ,\n" + two));
    read(body, CHAT);
    expect(textOf(body, mediaAt(0).start, mediaAt(0).end)).toBe(one);
    expect(textOf(body, mediaAt(1).start, mediaAt(1).end)).toBe(two);
  });

  it("in every cut", () => {
    expect(firstBadCut(utf8(parts('{"type":"text","text":"a"},' + image(png(64, 64)) + ',{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"},"uuid":"\\u0041"}')), CHAT)).toBe(-1);
  });

  it("items of all messages, in order", () => {
    read(utf8('{"messages":[{"role":"user","content":[' + image("1") + ']},{"role":"user","content":"x"},{"role":"user","content":[' + image("2") + "," + image("3") + "]}]}"), CHAT);
    expect(view.mmItems).toBe(3);
    expect(mediaAt(0).start).toBeLessThan(mediaAt(1).start);
    expect(mediaAt(1).end).toBeLessThan(mediaAt(2).start);
  });

  it("more items than there is room for are no error", () => {
    const unit = image("u") + ",";
    const body = joined(utf8('{"messages":[{"role":"user","content":['), repeated(unit, <i32>MAX_MEDIA + 100), utf8('"end"]}]}'));
    expect(read(body, CHAT)).toBe(ScanError.None);
    expect(view.mmItems).toBe(MAX_MEDIA);
    expect(view.mmDistinct).toBe(1);
  });
});

describe("place holders", () => {
  it("of a picture whose header tells its size: width times height through 1024, at least one", () => {
    expect(found(image(png(1024, 1024)))).toBe("image_url:1024");
    expect(found(image(png(640, 480)))).toBe("image_url:300");
    expect(found(image(png(1, 1)))).toBe("image_url:1");
    expect(found(image(png(31, 33)))).toBe("image_url:1");
    expect(found(image(gif(320, 64)))).toBe("image_url:20");
    expect(found(image(gif(65535, 256)))).toBe("image_url:16383");
    expect(found(image(jpeg(800, 600)))).toBe("image_url:468");
    expect(found(image(jpeg(800, 600, 0xc2)))).toBe("image_url:468");
  });

  it("of a picture that does not tell: 225", () => {
    const blind: StaticArray<string> = ["data:image/png;base64,", "data:image/png;base64,AAAA", "data:image/png,notbase64", "data:,", "data", png(640, 480).substring(0, 40), png(640, 480).replace("base64", "base32"), png(640, 480).replace("iVBOR", "!VBOR"), "data:image/jpeg;base64,/9j/4AAQ", jpeg(800, 600, 0xc4), "https://a.test/" + png(640, 480)];
    for (let i = 0; i < blind.length; i++) expect(found(image(blind[i]))).toBe("image_url:225", blind[i]);
    expect(found(image(png(0, 480)))).toBe("image_url:225");
  });

  it("of headers that lie: bounded, and the request is read", () => {
    expect(found(image(png(0xffffffff, 0xffffffff)))).toBe("image_url:262144");
    expect(found(image(png(0x80000000, 2)))).toBe("image_url:262144");
    const unit = image(png(0xffffffff, 0xffffffff)) + ",";
    const body = joined(utf8('{"messages":[{"role":"user","content":['), repeated(unit, 4200), utf8('"end"]}]}'));
    expect(read(body, CHAT)).toBe(ScanError.None);
    // Neither wrapped round nor negative: a prompt that nobody can hold.
    expect(view.tokens).toBeGreaterThan(1 << 23);
    expect(view.tokens).toBeLessThan(1 << 26);
    expect(view.keyCount).toBe(1024);
  });

  it("as configured", () => {
    const e = new LongVideos();
    e.imageStatic = 77;
    useEstimate(e);
    expect(found(image(png(640, 480)) + ',{"type":"video_url","video_url":{"url":"v"}}')).toBe("image_url:77 video_url:6000");
    e.imageStatic = 0;
    e.imageFactor = 256;
    e.imagePixels = 512 * 512;
    expect(found(image(png(640, 480)) + "," + image("u"))).toBe("image_url:1200 image_url:1024");
  });

  it("begin at a token, and what follows them begins at the next", () => {
    for (let n = 1; n < 9; n++) {
      found('{"type":"text","text":"' + "x".repeat(n) + '"},' + image("u") + ',{"type":"text","text":"y"}');
      expect(view.tokens).toBe(<u32>((n + 3) / 4 + 225 + 2), n.toString());
    }
  });

  it("equal pictures behind equal text share their keys, whatever follows", () => {
    const text = '{"type":"text","text":"abcdefgh"}';
    found(text + "," + image("u") + ',{"type":"text","text":"one"}');
    const a = keys();
    found(text + "," + image("u") + ',{"type":"text","text":"two"}');
    expect(shared(a, keys())).toBe((2 + 225) / 4);
    found(text + "," + image("v") + ',{"type":"text","text":"one"}');
    expect(shared(a, keys())).toBe(0);
  });

  it("detail, uuid and the order of members are no part of the prompt's content, the medium is", () => {
    const a = keysOf(parts(image("https://a.test/1.png")), CHAT);
    expect(same(a, keysOf(parts('{"image_url":{"detail":"high","url":"https:\\/\\/a.test/1.png"},"type":"image_url"}'), CHAT))).toBe(true);
    const audio = '{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}';
    const b = keysOf(parts(audio), CHAT);
    expect(same(b, keysOf(parts('{"uuid":"x","input_audio":{"format":"wav","data":"AAAA"},"type":"input_audio"}'), CHAT))).toBe(true);
    expect(shared(b, keysOf(parts(audio.replace("wav", "mp3")), CHAT))).toBe(0);
    expect(shared(b, keysOf(parts(audio.replace("AAAA", "AAAB")), CHAT))).toBe(0);
  });

  it("a picture that only its uuid names is told by it", () => {
    const a = keysOf(parts('{"type":"image_url","image_url":null,"uuid":"one"}'), CHAT);
    expect(shared(a, keysOf(parts('{"type":"image_url","image_url":null,"uuid":"two"}'), CHAT))).toBe(0);
    expect(same(a, keysOf(parts('{"type":"image_url","image_url":null,"uuid":"one"}'), CHAT))).toBe(true);
  });
});

describe("equal parts", () => {
  it("merge whatever the order of their members, white space or escapes", () => {
    const same = '{"type":"image_url","image_url":{"url":"https://a.test/1.png","detail":"low"}}';
    const spellings: StaticArray<string> = [
      same, '{ "type" : "image_url" , "image_url" : { "url" : "https://a.test/1.png" , "detail" : "low" } }', '{"image_url":{"detail":"low","url":"https://a.test/1.png"},"type":"image_url"}',
      '{"type":"image\\u005furl","image_url":{"url":"https:\\/\\/a.test\\/1.png","detail":"\\u006cow"}}', '{"cache_control":{"type":"x"},"type":"image_url","image_url":{"url":"https://a.test/1.png","detail":"low"}}',
    ];
    let all = "";
    for (let i = 0; i < spellings.length; i++) all += (i ? "," : "") + spellings[i];
    expect(distinct(all)).toBe(1);
    for (let i = 1; i < spellings.length; i++) expect(mediaAt(i).key == mediaAt(0).key).toBe(true, spellings[i]);
    expect(mediaAt(0).key != 0).toBe(true);
    // The same in another message, and behind other parts.
    read(utf8('{"messages":[{"role":"user","content":[' + same + ']},{"role":"user","content":["x",' + same + "]}]}"), CHAT);
    expect(view.mmDistinct).toBe(1);
  });

  it("do not when anything in them differs", () => {
    const a = '{"type":"image_url","image_url":{"url":"https://a.test/1.png","detail":"low"}}';
    const others: StaticArray<string> = [
      a.replace('"low"', '"high"'), a.replace(',"detail":"low"', ""), a.replace("/1.", "/2."), a.replace('"type":', '"uuid":"u","type":'), a.replace('"detail":"low"', '"detail":null'), a.replace('"detail":"low"', '"detail":{"low":1}'), a.replace('"detail"', '"detall"'),
      a.replace("image_url", "video_url").replace("image_url", "video_url"),
    ];
    for (let i = 0; i < others.length; i++) expect(distinct(a + "," + others[i])).toBe(2, others[i]);
  });

  it("case 07: four parts, two pictures; three when a detail differs", () => {
    expect(distinct([image("a"), image("b"), image("a"), image("a")].join(","))).toBe(2);
    expect(view.mmItems).toBe(4);
    expect(distinct([image("a"), image("b"), image("a").replace('"a"', '"a","detail":"high"'), image("a")].join(","))).toBe(3);
  });

  it("inline audio never merges, and what has no URL neither", () => {
    const never: StaticArray<string> = [
      '{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}', '{"type":"image_url","image_url":null,"uuid":"u"}', '{"type":"image_url","image_url":{}}', '{"type":"image_url","image_url":{"url":""}}', '{"type":"image_url","image_url":{"url":null}}', '{"type":"video_url"}',
      '{"type":"audio_url","audio_url":{"url":7}}', '{"type":"image_url","image_url":{"url":"a","url":null}}', '{"type":"image_url","video_url":{"url":"a"}}',
    ];
    for (let i = 0; i < never.length; i++) {
      expect(distinct(never[i] + "," + never[i])).toBe(2, never[i]);
      expect(mediaAt(0).key == 0).toBe(true, never[i]);
    }
  });

  it("the last of two URLs is the one that counts", () => {
    const a = '{"type":"image_url","image_url":{"url":"a","url":"b"}}';
    const b = '{"type":"image_url","image_url":{"url":"b","url":"a"}}';
    expect(distinct(a + "," + b)).toBe(2);
    expect(same(keysOf(parts(a), CHAT), keysOf(parts(image("b")), CHAT))).toBe(true);
    const c = '{"type":"image_url","image_url":{"url":"a"},"image_url":{"url":"b"}}';
    const d = '{"type":"image_url","image_url":{"url":"b"},"image_url":{"url":"a"}}';
    expect(distinct(c + "," + d)).toBe(2);
  });

  it("a URL under another kind is another item", () => {
    expect(distinct('{"type":"image_url","image_url":{"url":"a"}},{"type":"audio_url","audio_url":{"url":"a"}},{"type":"video_url","video_url":{"url":"a"}}')).toBe(3);
  });

  it("thousands of items are counted at once", () => {
    const list: string[] = [];
    for (let i = 0; i < 2000; i++) list.push(image("https://a.test/" + (i % 700).toString()));
    expect(distinct(list.join(","))).toBe(700);
  });

  it("keys differ from process to process", () => {
    found(image("a"));
    const key = mediaAt(0).key;
    scanner.start();
    scanner.reader.start(CHAT, 42, 0, 0, true);
    const body = utf8(parts(image("a")));
    scanner.feed(changetype<usize>(body), body.length);
    view.take(scanner);
    expect(mediaAt(0).key == key).toBe(false);
  });
});
