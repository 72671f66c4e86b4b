// Where the members stand that stages edit (DESIGN, decisions 2 and 5): the sidecar splices at these offsets.
import { Kind, Name, ScanError, ShapeId, spelling } from "../index";
import { LAST_REPORTED } from "../names";
import { joined, member, members, octets, read, repeated, scanner, textOf, utf8, view } from "./support";

const REPORTED: StaticArray<string> = [
  "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "max_output_tokens", "n", "best_of", "prompt_logprobs", "echo", "logprobs", "prompt_embeds", "previous_response_id", "conversation",
  "background", "store", "cache_hit_threshold", "cache_salt", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "sampling_params", "mm_processor_kwargs", "messages", "prompt", "input", "token_ids", "tools", "system",
  "instructions", "request_id", "continue_final_message", "add_generation_prompt",
];

function found(body: string, shape: u32 = ShapeId.Other): string {
  const bytes = utf8(body);
  expect(read(bytes, shape)).toBe(ScanError.None, body);
  return members(bytes);
}

describe("members", () => {
  it("every reported name, in every shape, with every kind of value", () => {
    const values: StaticArray<string> = ["null", "true", "false", "-1.5e3", '"a\\"}b"', '{"x":[{"y":1}]}', '[{"x":"]"},[]]'];
    const kinds: StaticArray<Kind> = [Kind.Null, Kind.True, Kind.False, Kind.Number, Kind.String, Kind.Object, Kind.Array];
    for (let shape: u32 = 0; shape <= <u32>ShapeId.Generate; shape++) {
      for (let i = 0; i < REPORTED.length; i++) {
        for (let v = 0; v < values.length; v++) {
          const text = '{"a":1,"' + REPORTED[i] + '":' + values[v] + ',"b":[2]}';
          const body = utf8(text);
          read(body, shape);
          const m = scanner.reader.memberAt(0);
          const right = view.error == ScanError.None && scanner.reader.memberCount == 1 && member(body, 0) == REPORTED[i] + "=" + values[v];
          if (!right || m.kind != <u8>kinds[v] || m.start != 7) expect(text).toBe("", "in shape " + shape.toString());
        }
      }
    }
  });

  it("all at once, in the order of the body", () => {
    let text = "{";
    let want = "";
    for (let i = REPORTED.length - 1; i >= 0; i--) {
      text += '"' + REPORTED[i] + '":' + i.toString() + (i ? "," : "}");
      want += REPORTED[i] + "=" + i.toString() + (i ? "; " : "");
    }
    expect(found(text)).toBe(want);
  });

  it("white space around name and value is not part of them", () => {
    const text = ' {\n\t"model" \r\n:\t "m" ,\n "n" :  2 , "messages" : [ ] }';
    expect(found(text)).toBe('model="m"; n=2; messages=[ ]');
    expect(textOf(utf8(text), scanner.reader.memberAt(1).start, scanner.reader.memberAt(1).start + 3)).toBe('"n"');
    expect(scanner.reader.memberAt(0).start).toBe(<u32>text.indexOf('"model"'));
  });

  it("offsets count bytes, a byte order mark and multi-byte characters included", () => {
    const body = joined(octets("\xef\xbb\xbf"), utf8('{"é€📏":"é€📏","model":"é€📏"}'));
    read(body);
    expect(members(body)).toBe('model="é€📏"');
    expect(scanner.reader.memberAt(0).start).toBe(<u32>body.length - 20);
  });

  it("duplicates are reported one by one", () => {
    expect(found('{"model":"a","x":1,"model":{"model":"b"},"model":null}')).toBe('model="a"; model={"model":"b"}; model=null');
  });

  it("names that only look like one are none", () => {
    const others: StaticArray<string> = ["Model", "MODEL", "mode", "models", " model", "model ", "kv_transfer_param", "kv_transfer_paramss", "kv-transfer-params", "", "extra_args", "role", "content", "url", "__proto__", "model\\u0000", "kv_transfer_params\\ud800"];
    for (let i = 0; i < others.length; i++) expect(found('{"' + others[i] + '":1}')).toBe("", others[i]);
  });

  it("names are compared after their escapes are resolved", () => {
    expect(found('{"kv\\u005ftransfer_params":1}')).toBe("kv_transfer_params=1");
    expect(found('{"\\u006b\\u0076\\u005F\\u0074\\u0072\\u0061\\u006e\\u0073\\u0066\\u0065\\u0072\\u005f\\u0070\\u0061\\u0072\\u0061\\u006d\\u0073":{}}')).toBe("kv_transfer_params={}");
    expect(found('{"bootstrap\\u005fhost":"h"}')).toBe('bootstrap_="h"');
    expect(found('{"vllm\\u005fxargs":{"ec\\u005ftransfer_params":2}}')).toBe('vllm_xargs={"ec\\u005ftransfer_params":2}; 0:vllm_xargs/ec_transfer_params=2');
    // An escaped escape is a backslash.
    expect(found('{"kv\\\\u005ftransfer_params":1}')).toBe("");
    expect(found('{"n\\/":1}')).toBe("");
  });

  it("every member that starts with bootstrap_ is one, however long its name", () => {
    expect(found('{"bootstrap_":1,"bootstrap_host":2,"bootstrap_room":3,"bootstrap":4,"Bootstrap_host":5,"xbootstrap_host":6,"bootstra\\u0070_port":7}')).toBe("bootstrap_=1; bootstrap_=2; bootstrap_=3; bootstrap_=7");
    const long = joined(utf8('{"bootstrap_'), repeated("x", 5000), utf8('":1}'));
    read(long);
    expect(members(long)).toBe("bootstrap_=1");
    read(joined(utf8('{"'), repeated("model", 1000), utf8('":1}')));
    expect(scanner.reader.memberCount).toBe(0);
  });

  it("control members inside vllm_xargs and sampling_params.extra_args know their parents", () => {
    expect(found('{"vllm_xargs":{"a":1,"kv_transfer_params":{"b":2},"ec_transfer_params":3}}')).toBe(
      'vllm_xargs={"a":1,"kv_transfer_params":{"b":2},"ec_transfer_params":3}; 0:vllm_xargs/kv_transfer_params={"b":2}; 0:vllm_xargs/ec_transfer_params=3',
    );
    expect(found('{"sampling_params":{"extra_args":{"kv_transfer_params":1,"ec_transfer_params":2}}}')).toBe(
      'sampling_params={"extra_args":{"kv_transfer_params":1,"ec_transfer_params":2}}; 0:sampling_params/extra_args={"kv_transfer_params":1,"ec_transfer_params":2}; 1:sampling_params.extra_args/kv_transfer_params=1; 1:sampling_params.extra_args/ec_transfer_params=2',
    );
    expect(found('{"sampling_params":{"max_tokens":5,"min_tokens":2,"n":3,"best_of":4,"prompt_logprobs":1,"logprobs":0,"stop":["a"]}}')).toBe(
      'sampling_params={"max_tokens":5,"min_tokens":2,"n":3,"best_of":4,"prompt_logprobs":1,"logprobs":0,"stop":["a"]}; 0:sampling_params/max_tokens=5; 0:sampling_params/min_tokens=2; 0:sampling_params/n=3; 0:sampling_params/best_of=4; 0:sampling_params/prompt_logprobs=1; 0:sampling_params/logprobs=0',
    );
  });

  it("parents that stand twice have children of their own", () => {
    expect(found('{"vllm_xargs":{"kv_transfer_params":1},"n":1,"vllm_xargs":{"kv_transfer_params":2,"kv_transfer_params":3}}')).toBe(
      'vllm_xargs={"kv_transfer_params":1}; 0:vllm_xargs/kv_transfer_params=1; n=1; vllm_xargs={"kv_transfer_params":2,"kv_transfer_params":3}; 3:vllm_xargs/kv_transfer_params=2; 3:vllm_xargs/kv_transfer_params=3',
    );
    expect(found('{"sampling_params":{"extra_args":{"ec_transfer_params":1},"extra_args":{"ec_transfer_params":2}}}')).toBe(
      'sampling_params={"extra_args":{"ec_transfer_params":1},"extra_args":{"ec_transfer_params":2}}; 0:sampling_params/extra_args={"ec_transfer_params":1}; 1:sampling_params.extra_args/ec_transfer_params=1; 0:sampling_params/extra_args={"ec_transfer_params":2}; 3:sampling_params.extra_args/ec_transfer_params=2',
    );
  });

  it("the same names elsewhere are somebody's data", () => {
    const others: StaticArray<string> = [
      '{"metadata":{"kv_transfer_params":1,"model":"x","bootstrap_host":2}}',
      '{"a":{"vllm_xargs":{"kv_transfer_params":1}}}',
      '{"a":[{"kv_transfer_params":1}]}',
      '[{"kv_transfer_params":1}]',
      '[[{"model":1}]]',
    ];
    for (let i = 0; i < others.length; i++) expect(found(others[i])).toBe("", others[i]);
    expect(found('{"vllm_xargs":[{"kv_transfer_params":1}]}')).toBe('vllm_xargs=[{"kv_transfer_params":1}]');
    expect(found('{"vllm_xargs":{"a":{"kv_transfer_params":1}}}')).toBe('vllm_xargs={"a":{"kv_transfer_params":1}}');
    expect(found('{"sampling_params":{"kv_transfer_params":1}}')).toBe('sampling_params={"kv_transfer_params":1}');
    expect(found('{"sampling_params":{"extra_args":[{"kv_transfer_params":1}]}}')).toBe('sampling_params={"extra_args":[{"kv_transfer_params":1}]}; 0:sampling_params/extra_args=[{"kv_transfer_params":1}]');
    expect(found('{"vllm_xargs":{"bootstrap_host":1,"model":2,"extra_args":{"kv_transfer_params":1}}}')).toBe('vllm_xargs={"bootstrap_host":1,"model":2,"extra_args":{"kv_transfer_params":1}}');
    expect(found('{"kv_transfer_params":{"kv_transfer_params":{"vllm_xargs":1}}}')).toBe('kv_transfer_params={"kv_transfer_params":{"vllm_xargs":1}}');
    expect(found('{"messages":[{"model":1,"content":[{"kv_transfer_params":1}]}]}', ShapeId.Chat)).toBe('messages=[{"model":1,"content":[{"kv_transfer_params":1}]}]');
  });

  it("at the depth limit and after deep values the top level is the top level", () => {
    const body = joined(joined(utf8('{"metadata":'), repeated('{"model":[', 2000), repeated("]}", 2000)), utf8(',"model":"m"}'));
    expect(read(body, ShapeId.Chat)).toBe(ScanError.None);
    expect(members(body)).toBe('model="m"');
  });

  it("so many and no more; without spans there is no limit", () => {
    const many = joined(utf8("{"), repeated('"n":1,', 4095), utf8('"n":1}'));
    expect(read(many)).toBe(ScanError.None);
    expect(scanner.reader.memberCount).toBe(4096);
    expect(member(many, 4095)).toBe("n=1");
    const more = joined(utf8("{"), repeated('"n":1,', 4096), utf8('"n":1}'));
    expect(read(more)).toBe(ScanError.TooManyMembers);
    expect(read(more, ShapeId.Other, false)).toBe(ScanError.None);
    expect(scanner.reader.memberCount).toBe(0);
    // Members that mean nothing do not count.
    expect(read(joined(utf8("{"), repeated('"x":1,', 100000), utf8('"n":1}')))).toBe(ScanError.None);
    expect(scanner.reader.memberCount).toBe(1);
  });

  it("the names that the sidecar's table takes from here", () => {
    for (let i = 0; i < REPORTED.length; i++) {
      let known = false;
      for (let name: i32 = 1; name <= LAST_REPORTED; name++) if (spelling(<Name>name) == REPORTED[i]) known = true;
      expect(known).toBe(true, REPORTED[i]);
    }
    expect(spelling(Name.Bootstrap)).toBe("bootstrap_");
    expect(spelling(Name.ExtraArgs)).toBe("extra_args");
  });
});
