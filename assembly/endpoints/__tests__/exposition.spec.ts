// Prometheus text in pieces (scheduler §5.1): the few series that steer, out of answers of any size and shape.
import { EngineNames, Exposition } from "../index";
import { findLabel, SeriesSpec } from "../engine-names";
import { decimal } from "../exposition";

const VLLM = new EngineNames("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info", "block_size", "num_gpu_blocks", "", "", "vllm:prompt_tokens_total");
const TRITON = new EngineNames(
  "nv_trt_llm_request_metrics{request_type=waiting}",
  "nv_trt_llm_request_metrics{request_type=scheduled}",
  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
  "",
  "",
  "",
  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
  "",
);

const answer = new Exposition(VLLM);

function feed(text: string, from: i32, to: i32): void {
  // A copy that is overwritten behind it.
  const piece = String.UTF8.encode(text.substring(from, to));
  answer.feed(changetype<usize>(piece), piece.byteLength);
  memory.fill(changetype<usize>(piece), 0x31, piece.byteLength);
}

function read(text: string, names: EngineNames = VLLM): string {
  answer.start(names);
  feed(text, 0, text.length);
  answer.finish();
  return said();
}

function show(value: f64): string {
  return value == value ? value.toString() : "-";
}

/** waiting, running, kv usage, block tokens, blocks. */
function said(): string {
  return [show(answer.waiting), show(answer.running), show(answer.kvUsage), show(answer.blockTokens), show(answer.blocks)].join(" ");
}

const PAGE =
  "# HELP vllm:num_requests_running Number of requests in model execution batches.\n# TYPE vllm:num_requests_running gauge\n" +
  'vllm:num_requests_running{engine="0",model_name="base-vl"} 3.0\n' +
  "# TYPE vllm:num_requests_waiting gauge\n" +
  'vllm:num_requests_waiting{engine="0",model_name="base-vl"} 12.0\n' +
  'vllm:num_requests_waiting_by_reason{engine="0",model_name="base-vl",reason="capacity"} 99.0\n' +
  'vllm:kv_cache_usage_perc{engine="0",model_name="base-vl"} 0.25\n' +
  'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",num_gpu_blocks="512",num_gpu_blocks_override="None"} 1.0\n' +
  'vllm:prompt_tokens_total{engine="0",model_name="base-vl"} 12345.0\n' +
  "process_start_time_seconds 1.76380512345e+09\n" +
  'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="base-vl"} 0.0\n';

describe("an answer", () => {
  it("of a vLLM", () => {
    expect(read(PAGE)).toBe("12.0 3.0 0.25 16.0 512.0");
    expect(answer.startTime).toBe(1763805123.45);
    expect(answer.counter).toBe(12345);
  });

  it("in any pieces", () => {
    for (let cut = 0; cut <= PAGE.length; cut++) {
      answer.start(VLLM);
      feed(PAGE, 0, cut);
      feed(PAGE, cut, PAGE.length);
      answer.finish();
      if (said() != "12.0 3.0 0.25 16.0 512.0" || answer.counter != 12345) expect(said()).toBe("", "cut at " + cut.toString());
    }
    answer.start(VLLM);
    for (let i = 0; i < PAGE.length; i++) feed(PAGE, i, i + 1);
    answer.finish();
    expect(said()).toBe("12.0 3.0 0.25 16.0 512.0");
  });

  it("says nothing of the last one", () => {
    read(PAGE);
    expect(read("vllm:num_requests_waiting 1\n")).toBe("1.0 - - - -");
    expect(answer.counter == answer.counter).toBe(false);
    expect(answer.startTime == answer.startTime).toBe(false);
    // Nor does half a line of one that was cut off.
    answer.start(VLLM);
    feed("vllm:num_requests_waiting 7", 0, 27);
    expect(read("\nvllm:num_requests_running 2\n")).toBe("- 2.0 - - -");
    answer.start(VLLM);
    const long = "x".repeat(5000);
    feed(long, 0, long.length);
    expect(read("vllm:num_requests_running 2\n")).toBe("- 2.0 - - -");
  });

  it("with CR LF, without a last line end, with empty lines", () => {
    expect(read("vllm:num_requests_waiting 1\r\nvllm:num_requests_running{a=\"b\"} 2\r\n\r\n\n\nvllm:kv_cache_usage_perc 0.5")).toBe("1.0 2.0 0.5 - -");
    expect(read("")).toBe("- - - - -");
    expect(read("\n")).toBe("- - - - -");
  });

  it("with time stamps, exemplars and tabs", () => {
    expect(read('vllm:num_requests_waiting{a="b"} 4 1700000000000\nvllm:num_requests_running\t5\t1700000000000\nvllm:kv_cache_usage_perc 0.75 # {trace="x"} 1\n')).toBe("4.0 5.0 0.75 - -");
  });

  it("where a name is longer, shorter or only mentioned", () => {
    expect(read('vllm:num_requests_waiting_total 9\nvllm:num_requests_waitin 9\nxvllm:num_requests_waiting 9\n# vllm:num_requests_waiting 9\nother{x="\\nvllm:num_requests_waiting 9"} 1\n')).toBe("- - - - -");
  });

  it("with labels that hold braces, quotes, backslashes, commas and line ends", () => {
    const odd = '{model_name="a}b{c\\"d\\\\",x="} 77",y="\\n",z=","}';
    expect(read("vllm:num_requests_waiting" + odd + " 6\nvllm:num_requests_running" + odd + " 7\n")).toBe("6.0 7.0 - - -");
    expect(read('vllm:cache_config_info{note="block_size=\\"99\\"",a="x,block_size=",block_size="32",num_gpu_blocks="7"} 1\n')).toBe("- - - 32.0 7.0");
    expect(read('vllm:cache_config_info{my_block_size="99", block_size="32" ,num_gpu_blocks="None"} 1\n')).toBe("- - - 32.0 -");
    expect(read('vllm:cache_config_info{num_gpu_blocks="8",a="block_size="} 1\n')).toBe("- - - - 8.0");
  });

  it("with broken lines", () => {
    const broken: StaticArray<string> = [
      "vllm:num_requests_waiting", "vllm:num_requests_waiting ", "vllm:num_requests_waiting{", 'vllm:num_requests_waiting{a="', 'vllm:num_requests_waiting{a="b"', 'vllm:num_requests_waiting{a="b\\', 'vllm:num_requests_waiting{a="b"}', 'vllm:num_requests_waiting{a="b"} x', "vllm:num_requests_waiting - 5",
      "vllm:num_requests_waiting .", "vllm:num_requests_waiting e5", "{} 5", " 5", "}", '"', "\\",
    ];
    for (let i = 0; i < broken.length; i++) {
      expect(read(broken[i])).toBe("- - - - -", broken[i]);
      expect(read(broken[i] + "\nvllm:num_requests_running 2\n")).toBe("- 2.0 - - -", broken[i]);
    }
  });

  it("NaN and infinities are no values", () => {
    expect(read("vllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\nvllm:kv_cache_usage_perc -Inf\n")).toBe("- - - - -");
    expect(read("vllm:num_requests_waiting 1e999\nvllm:num_requests_running " + "9".repeat(400) + "\nvllm:kv_cache_usage_perc 99e307\n")).toBe("- - - - -");
    expect(read("vllm:num_requests_waiting 2\nvllm:num_requests_waiting NaN\n")).toBe("2.0 - - - -");
  });

  it("of an engine with several ranks: requests add up, the cache is as full as its fullest rank", () => {
    expect(read('vllm:num_requests_waiting{engine="0"} 2\nvllm:num_requests_waiting{engine="1"} 5\nvllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\nvllm:kv_cache_usage_perc{engine="1"} 0.75\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n')).toBe("7.0 2.0 0.75 - -");
  });

  it("of an engine whose series are one family told apart by labels", () => {
    expect(
      read(
        'nv_trt_llm_request_metrics{model="m",request_type="active",version="1"} 9\nnv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4\nnv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 6\nnv_trt_llm_request_metrics{request_type="waiting_long"} 50\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.125\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"} 64\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 1000\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"} 125\n',
        TRITON,
      ),
    ).toBe("6.0 4.0 0.125 64.0 1000.0");
  });

  it("with lines of megabytes, in pieces and whole, reads what stands around them", () => {
    const long = 'vllm:lora_requests_info{x="' + "y".repeat(100000) + '"} 1\n';
    const page = "vllm:num_requests_waiting 1\n" + long + "vllm:num_requests_running 2\n" + long + long + "vllm:kv_cache_usage_perc 0.5";
    expect(read(page)).toBe("1.0 2.0 0.5 - -");
    answer.start(VLLM);
    for (let i = 0; i < page.length; i += 777) feed(page, i, min(i + 777, page.length));
    answer.finish();
    expect(said()).toBe("1.0 2.0 0.5 - -");
    // A series of ours in such a line is not read, in pieces or whole.
    const ours = "vllm:num_requests_waiting{x=\"" + "y".repeat(20000) + '"} 1\n';
    expect(read(ours)).toBe("- - - - -");
    answer.start(VLLM);
    for (let i = 0; i < ours.length; i += 100) feed(ours, i, min(i + 100, ours.length));
    answer.finish();
    expect(said()).toBe("- - - - -");
  });

  it("at the edge of the longest line, whole and in pieces alike", () => {
    for (let n = 16376; n < 16392; n++) {
      const line = 'vllm:num_requests_waiting{x="' + "y".repeat(n - 33) + '"} 1';
      expect(line.length).toBe(n);
      const whole = read(line + "\n");
      answer.start(VLLM);
      feed(line + "\n", 0, 1000);
      feed(line + "\n", 1000, line.length + 1);
      answer.finish();
      expect(said()).toBe(whole, n.toString());
      expect(read(line)).toBe(whole, n.toString());
    }
  });

  it("of bytes that are no text", () => {
    const noise = new StaticArray<u8>(5000);
    for (let i = 0; i < noise.length; i++) noise[i] = <u8>((i * 7919) >> 3);
    answer.start(VLLM);
    answer.feed(changetype<usize>(noise), noise.length);
    answer.finish();
    expect(said()).toBe("- - - - -");
  });
});

describe("the number of a sample", () => {
  it("is read in every form", () => {
    const texts: StaticArray<string> = ["0", "1", "-1", "+2", " 3", "\t4", "5.", ".5", "6.25", "1e3", "1E3", "1e+3", "25e-2", "-0.5e1", "7 1700000000", "8\r", "1.0000000000", "0e99999", "1e-99999", "00012"];
    const values: StaticArray<f64> = [0, 1, -1, 2, 3, 4, 5, 0.5, 6.25, 1000, 1000, 1000, 0.25, -5, 7, 8, 1, 0, 0, 12];
    for (let i = 0; i < texts.length; i++) expect(decimal(changetype<usize>(String.UTF8.encode(texts[i])), texts[i].length)).toBe(values[i], texts[i]);
  });

  it("or is none", () => {
    const none: StaticArray<string> = ["", " ", "x", "-", "+", ".", "e", "NaN", "Inf", "+Inf", "-Inf", "1e309", "-1e400"];
    for (let i = 0; i < none.length; i++) {
      const value = decimal(changetype<usize>(String.UTF8.encode(none[i])), none[i].length);
      expect(value == value).toBe(false, none[i]);
    }
  });
});

describe("a series' specification", () => {
  it("is a name, and conditions on labels", () => {
    const spec = new SeriesSpec('a{b=c, d="e f"}');
    const name = String.UTF8.encode("a");
    expect(spec.isNamed(changetype<usize>(name), 1)).toBe(true);
    const yes: StaticArray<string> = ['{b="c",d="e f"}', '{d="e f",x="y",b="c"}', '{b="c", d="e f"}'];
    for (let i = 0; i < yes.length; i++) expect(spec.hasLabels(changetype<usize>(String.UTF8.encode(yes[i])), yes[i].length)).toBe(true, yes[i]);
    const no: StaticArray<string> = ["", "{}", '{b="c"}', '{d="e f"}', '{b="cc",d="e f"}', '{b="c",d="e"}', '{bb="c",d="e f"}', '{x="b=\\"c\\"",d="e f"}', '{x=",b=",c="{d=",d="e f"}'];
    for (let i = 0; i < no.length; i++) expect(spec.hasLabels(changetype<usize>(String.UTF8.encode(no[i])), no[i].length)).toBe(false, no[i]);
  });

  it("an empty one is a series that is not there", () => {
    const spec = new SeriesSpec("");
    const text = String.UTF8.encode("a");
    expect(spec.isNamed(changetype<usize>(text), 0)).toBe(false);
    expect(spec.isNamed(changetype<usize>(text), 1)).toBe(false);
    expect(spec.hasLabels(changetype<usize>(text), 0)).toBe(true);
  });

  it("a label is found at its start only", () => {
    const labels = String.UTF8.encode('{aa="x",a="1"}');
    expect(findLabel(changetype<usize>(labels), labels.byteLength, String.UTF8.encode('a="'))).toBe(11);
    expect(findLabel(changetype<usize>(labels), labels.byteLength, String.UTF8.encode('b="'))).toBe(-1);
    expect(findLabel(changetype<usize>(labels), 3, String.UTF8.encode('aa="'))).toBe(-1);
  });
});
