import { media, mustLoad, pluginError, table } from "../../../config/__tests__/support";
import { EndpointTable } from "../../../endpoints/table";
import { Pass } from "../../pass";
import { Random } from "../../random";
import { MmEmbeddingsCacheScorer } from "../mm-embeddings-cache";

/** Items with these tokens, 16 bytes each, as `RequestFacts.items` has them. */
function items(tokens: StaticArray<u32>): StaticArray<u8> {
  const out = new StaticArray<u8>(tokens.length * 16);
  for (let i = 0; i < tokens.length; i++) {
    store<u64>(changetype<usize>(out) + <usize>i * 16, 1000 + i);
    store<u32>(changetype<usize>(out) + <usize>i * 16 + 8, tokens[i]);
  }
  return out;
}

function scores(endpoints: EndpointTable, tokens: StaticArray<u32>): string {
  const held = items(tokens);
  const pass = new Pass(endpoints, new Random());
  pass.facts = media(1000, tokens.length);
  pass.facts.items = changetype<usize>(held);
  pass.count = endpoints.count;
  for (let i = 0; i < endpoints.count; i++) pass.candidates[i] = i;
  new MmEmbeddingsCacheScorer().score(pass);
  let out = "";
  for (let i = 0; i < endpoints.count; i++) out += (i > 0 ? " " : "") + pass.raw[i].toString();
  return out;
}

describe("mm-embeddings-cache-scorer", () => {
  it("is the share of the items that an endpoint has encoded, each with the weight of its tokens", () => {
    const endpoints = table("encode encode encode encode");
    endpoints.heldItems[0] = 0b111;
    endpoints.heldItems[1] = 0b001;
    endpoints.heldItems[2] = 0b100;
    expect(scores(endpoints, [100, 200, 100])).toBe("1.0 0.25 0.25 0.0");
    expect(scores(endpoints, [1, 1, 2])).toBe("1.0 0.25 0.5 0.0");
  });

  it("is 0 for a request without media", () => {
    const endpoints = table("encode");
    endpoints.heldItems[0] = 1;
    expect(scores(endpoints, [])).toBe("0.0");
  });

  it("tells the most items that are told apart", () => {
    const endpoints = table("encode encode");
    const tokens = new StaticArray<u32>(48);
    tokens.fill(10);
    endpoints.heldItems[0] = (<u64>1 << 48) - 1;
    endpoints.heldItems[1] = <u64>1 << 47;
    expect(scores(endpoints, tokens)).toBe("1.0 " + (10.0 / 480.0).toString());
  });

  it("brings its producer with it: 2 MiB an item", () => {
    const picker = (more: string): string => '{"plugins":[' + more + '{"type":"mm-embeddings-cache-scorer"}]}';
    expect(mustLoad('{"plugins":[{"type":"queue-scorer"}]}').mediaItems).toBe(0);
    expect(mustLoad(picker("")).mediaItems).toBe(2048);
    expect(mustLoad(picker('{"type":"mm-embeddings-cache-producer"},')).mediaItems).toBe(2048);
    expect(mustLoad(picker('{"type":"mm-embeddings-cache-producer","parameters":{"cacheSizeInMBPerServer":100}},')).mediaItems).toBe(50);
    expect(pluginError('{"type":"mm-embeddings-cache-producer","parameters":{"cacheSizeInMB":100}}', "plugins[0].parameters.cacheSizeInMB", "unknown field")).toBe("");
    expect(pluginError('{"type":"mm-embeddings-cache-scorer","parameters":{"producerName":"nobody"}}', "plugins[0].parameters.producerName", "undefined")).toBe("");
  });
});
