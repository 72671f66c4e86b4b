import { mustLoad, list, table, tokens } from "../../../config/__tests__/support";
import { AdapterBook } from "../../../endpoints/adapters";
import { EngineNames } from "../../../endpoints/engine-names";
import { Exposition } from "../../../endpoints/exposition";
import { nameHash } from "../../../endpoints/index";
import { Fleet } from "../../../endpoints/fleet";
import { MemoryStore } from "../../../store";
import { Pass } from "../../pass";
import { Random } from "../../random";
import { LoraAffinityScorer } from "../lora-affinity";

function hashOf(name: string): u32 {
  const bytes = String.UTF8.encode(name);
  return nameHash(changetype<usize>(bytes), bytes.byteLength);
}

/** What a scrape that answers `text` says of adapters. */
function scraped(text: string): Exposition {
  const answer = new Exposition(new EngineNames("", "", "", "", "", "", "", "", "", "vllm:lora_requests_info"));
  const bytes = String.UTF8.encode(text);
  answer.start(new EngineNames("", "", "", "", "", "", "", "", "", "vllm:lora_requests_info"));
  answer.feed(changetype<usize>(bytes), bytes.byteLength);
  answer.finish();
  return answer;
}

function info(running: string, waiting: string, most: i32, at: i32 = 1): string {
  return 'vllm:lora_requests_info{max_lora="' + most.toString() + '",running_lora_adapters="' + running + '",waiting_lora_adapters="' + waiting + '"} ' + at.toString() + "\n";
}

describe("lora-affinity-scorer", () => {
  it("an active adapter 1, room for one more 0.8, a waiting adapter 0.6, full 0, nothing told 0", () => {
    const endpoints = table("- - - - - -");
    const ids: StaticArray<u32> = [11, 12, 13, 14, 15, 16];
    const store = new MemoryStore();
    const book = new AdapterBook(6);
    book.note(0, 11, scraped(info("sql,other", "", 2)));
    book.note(1, 12, scraped(info("other", "", 2)));
    book.note(2, 13, scraped(info("a,b", "sql", 2)));
    book.note(3, 14, scraped(info("a,b", "", 2)));
    book.note(4, 15, scraped("vllm:num_requests_waiting 0\n"));
    book.note(5, 16, scraped("vllm:num_requests_waiting 0\n"));
    book.write(store);
    endpoints.known[5] = 0;
    const scorer = new LoraAffinityScorer();
    scorer.prepare(endpoints);
    const pass = new Pass(endpoints, new Random());
    pass.facts = tokens(10);
    pass.facts.model = hashOf("sql");
    pass.store = store;
    pass.fleet = new Fleet(ids);
    pass.count = 6;
    for (let i = 0; i < 6; i++) pass.candidates[i] = i;
    scorer.produce(pass);
    scorer.score(pass);
    let out = "";
    for (let i = 0; i < 6; i++) out += pass.raw[i].toString() + " ";
    // The last one's scrape is old: in the middle.
    expect(out).toBe("1.0 0.8 0.6 0.0 0.0 0.5 ");
  });

  it("the newest series counts", () => {
    const store = new MemoryStore();
    const book = new AdapterBook(1);
    book.note(0, 1, scraped(info("old", "", 1, 100) + info("sql", "", 1, 300) + info("older", "", 1, 50)));
    book.write(store);
    const endpoints = table("-");
    const scorer = new LoraAffinityScorer();
    scorer.prepare(endpoints);
    const pass = new Pass(endpoints, new Random());
    pass.facts.model = hashOf("sql");
    pass.store = store;
    const ids: StaticArray<u32> = [1];
    pass.fleet = new Fleet(ids);
    pass.count = 1;
    scorer.produce(pass);
    scorer.score(pass);
    expect(pass.raw[0]).toBe(1);
  });

  it("leads a request to its adapter, and an id that is gone to nobody", () => {
    const c = mustLoad('{"plugins":[{"type":"lora-affinity-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"lora-affinity-scorer"}]}]}', "- - -");
    expect(c.adapters).toBe(true);
    const store = new MemoryStore();
    const ids: StaticArray<u32> = [1, 2, 3];
    c.scheduler.use(store, new Fleet(ids));
    for (let i = 0; i < 3; i++) c.endpoints.known[i] = 7;
    const book = new AdapterBook(3);
    book.note(0, 1, scraped(info("a,b", "", 2)));
    book.note(1, 2, scraped(info("sql", "", 2)));
    book.note(2, 3, scraped(info("a", "", 2)));
    book.write(store);
    const facts = tokens(10);
    facts.model = hashOf("sql");
    for (let i = 0; i < 10; i++) expect(list(c.scheduler.decide(facts).decode)).toBe("1");
    facts.model = hashOf("law");
    let second = 0;
    for (let i = 0; i < 40; i++) {
      const picked = list(c.scheduler.decide(facts).decode);
      expect(picked != "0").toBe(true);
      if (picked == "2") second++;
    }
    expect(second).toBeGreaterThan(5);
    book.note(1, 0, scraped(info("sql", "", 2)));
    book.write(store);
    facts.model = hashOf("sql");
    for (let i = 0; i < 10; i++) expect(list(c.scheduler.decide(facts).decode)).toBe("2");
  });
});
