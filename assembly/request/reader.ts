// What the members of a body mean: which string bytes are prompt text, which values steer a stage, which parts are media. One byte of context per open level, chosen from
// the context above and the member's name; the API shapes differ only in what their top-level members are (shapes/).
import { BlockSink, SinkMark } from "./blocks";
import { idHash } from "../endpoints/bindings";
import { avalanche, K1, K2, K3, K4, K5, mix } from "./hash";
import { mediaTokens } from "./media";
import { LAST_REPORTED, Name, NAME_ROOM, nameOf } from "./names";
import { isNumeric, numberOf } from "./numbers";
import { PictureProbe } from "./picture";
import { Kind, Mode, ScanError, Scanner } from "./scanner";
import { ShapeId, shapeOf } from "./shape";
import { NameSet, STRICT_DEPTH } from "./strict";
import { clear, copy } from "../words";

/** The meaning of a value, or of an open container. */
export const enum Ctx {
  /** Only its syntax is read. */
  Skip = 0,
  Top = 1,
  /** A top-level scalar that is remembered by name. */
  Scalar = 2,
  Xargs = 3,
  Sampling = 4,
  /** Inside `sampling_params`: a scalar that is remembered by name. */
  SamplingScalar = 5,
  ExtraArgs = 6,
  /** A top-level value that takes part in the key as a whole. */
  Side = 7,
  /** A list of messages (chat, messages) or items (responses). */
  Messages = 8,
  Message = 9,
  /** A value inside a message that takes part in the key as a whole. */
  MessageSide = 10,
  /** A message's content: text, or a list of parts. */
  Content = 11,
  Text = 12,
  Part = 13,
  PartType = 14,
  PartText = 15,
  PartUuid = 16,
  /** `image_url` and its like inside a part. */
  Media = 17,
  MediaUrl = 18,
  MediaData = 19,
  MediaFormat = 20,
  /** `prompt` of completions. */
  Prompt = 21,
  PromptText = 22,
  /** A list of ids inside a list of prompts. */
  PromptIds = 23,
  Id = 24,
  /** `token_ids`. */
  Ids = 25,
  /** Text in front of all messages: `system`, `instructions`. */
  Front = 26,
  Control = 27,
  /** `features` of generate, its `mm_hashes`, and the list of one modality there. */
  Features = 28,
  FeatureHashes = 29,
  FeatureList = 30,
}

/** Where a member was found. */
export const enum Parent {
  Top = 0,
  Xargs = 1,
  Sampling = 2,
  ExtraArgs = 3,
}

/** One reported occurrence of a name; the layout is part of the plain bindings. */
@unmanaged
export class MemberSpan {
  name: u8;
  parent: u8;
  kind: u8;
  private pad: u8;
  /** Index of the span of the object that holds it; -1 at the top level. */
  parentIndex: i32;
  /** Offset of the opening quote of the name. */
  start: u32;
  valueStart: u32;
  valueEnd: u32;
}

/** One media part; the layout is part of the plain bindings. */
@unmanaged
export class MediaSpan {
  /** `Name` of the part's type. */
  type: u32;
  start: u32;
  end: u32;
  /** Place holders that it takes in the prompt. */
  tokens: u32;
  /** Equal for equal parts; 0: merged with no other. */
  key: u64;
}

/** What a part says under one of its media members. */
@unmanaged
class MediaSlot {
  urlHash: u64;
  dataHash: u64;
  formatHash: u64;
  /** Decoded bytes of the URL; 0: none. */
  urlSize: u32;
  /** Width times height, 0 when the URL does not tell. */
  pixels: u32;
  /** Decoded bytes of inline data, and of the name of its format. */
  dataSize: u32;
  formatSize: u32;
}

@unmanaged
class PartState {
  start: u32;
  type: u32;
  texts: u32;
  block: u32;
  uuid: u64;
  /** Compact bytes of the region in front of this part. */
  compact: u32;
  /** It holds parts of its own. */
  nested: u32;
  mark: SinkMark;
  /** 5 slots: image_url, audio_url, video_url, input_audio, source. */
  slots: usize;
}

/** Deepest level whose context is kept. */
const CONTEXTS: u32 = 64;
/** Levels of a hashed value that are told apart; what is deeper is hashed in the order of the text. */
const LEVELS: i32 = 24;
const MAX_MEMBERS: u32 = 4096;
export const MAX_MEDIA: u32 = 8192;
/** Parts inside parts: a tool result that holds pictures (Anthropic). */
const PARTS: u32 = 2;
const SLOTS: u32 = 5;
export const KEEP: u32 = 256;

/** Values beside the text that take part in the key: tools first, then the rest by name. */
export const enum SideSlot {
  Tools = 0,
  Documents = 1,
  ChatTemplate = 2,
  ChatTemplateKwargs = 3,
  MmProcessorKwargs = 4,
  CacheSalt = 5,
  LoraPath = 6,
  Features = 7,
  /** An engine that cuts the prompt computes another one. */
  TruncatePromptTokens = 8,
  TruncationSide = 9,
  COUNT = 10,
}

/** Members of a message that take part in its salt. The first COUNTED count with their bytes, as an engine's template renders them. */
const enum MessageSlot {
  Role = 0,
  ToolCalls = 1,
  FunctionCall = 2,
  ReasoningContent = 3,
  Reasoning = 4,
  Arguments = 5,
  Output = 6,
  Name = 7,
  ToolCallId = 8,
  CallId = 9,
  COUNT = 10,
  COUNTED = 7,
}

@unmanaged
export class Reader {
  seed: u64;
  shape: u32;
  /** Report spans (the sidecar), or only values (the filter). */
  private spans: u32;
  /** What the members or elements of the container at each level are read as, and what the container itself is. */
  private contexts: usize;
  private meanings: usize;
  private cur: u32;
  private next: u32;
  private nextName: u32;
  /** Name of the remembered scalar that is being read; its value may be an object with names of its own. */
  private scalarName: u32;
  private closedHash: u64;
  private closedCtx: u32;
  private empty: u32;
  id: u64;
  /** The innermost container is a list that token ids may stand in: the scanner reads them without a call per value. */
  idList: u32;
  private idsAreOnePrompt: u32;

  // Spans.
  members: usize;
  memberCount: u32;
  private memberRoom: u32;
  /** Open member by depth 1..3; -1: none. */
  private open1: i32;
  private open2: i32;
  private open3: i32;
  private nameStart: u32;
  objectStart: u32;
  objectEnd: u32;
  isObject: u32;

  // The name and the first bytes of the string or number that is being read.
  private nameSize: u32;
  private keepSize: u32;
  private nameAt: usize;
  private keepAt: usize;
  /** The size of the picture that is being read, when the string is one. */
  private probe: PictureProbe;
  private probing: u32;

  // Remembered scalars: the kind of the last occurrence plus 1, by name; numbers of the few that have one.
  private kinds: usize;
  private samplingKinds: usize;
  /** Which known names the top-level object has had. */
  private seen: usize;
  private count: f64;
  private bestOf: f64;
  private samplingCount: f64;
  private samplingBestOf: f64;
  modelAt: usize;
  modelSize: u32;
  modelHash: u64;
  /** Of the last `previous_response_id` or `conversation` that is a text; 0: none. */
  keptFor: u64;

  // The value that is being hashed as a whole.
  private base: i32;
  private accs: usize;
  private keys: usize;
  private compact: u32;
  private omitLevel: i32;
  private omitCompact: u32;

  sides: usize;
  toolsBytes: u32;

  main: BlockSink;
  front: BlockSink;
  private sink: BlockSink;

  // Message and parts.
  private messageBlock: u32;
  private messageContents: u32;
  private messageMedia: u32;
  private messageMark: SinkMark;
  private messageHashes: usize;
  private messageBytes: usize;
  private slot: u32;
  private partDepth: u32;
  private parts: usize;
  media: usize;
  mediaCount: u32;
  /** Media that `features` of generate speaks of. */
  features: u32;
  private mediaRoom: u32;
  /** Prompts in `prompt`; 1 for every other shape that has one. */
  prompts: u32;
  /** The prompt has a form that is not counted (objects, embeddings). */
  strange: u32;
  /** Elements of the list of messages. */
  private messages: u32;
  /** Read strictly: a message has not the form of one. */
  private misshapen: u32;
  /** One of the names that are known here stands twice in the top-level object. */
  duplicates: u32;
  private strict: u32;
  private names: NameSet;

  static make(): Reader {
    const r = changetype<Reader>(heap.alloc(offsetof<Reader>()));
    memory.fill(changetype<usize>(r), 0, offsetof<Reader>());
    r.contexts = heap.alloc(CONTEXTS);
    r.meanings = heap.alloc(CONTEXTS);
    r.nameAt = heap.alloc(NAME_ROOM);
    r.keepAt = heap.alloc(KEEP);
    r.probe = changetype<PictureProbe>(heap.alloc(offsetof<PictureProbe>()));
    r.modelAt = heap.alloc(KEEP);
    r.kinds = heap.alloc(Name.COUNT);
    r.samplingKinds = heap.alloc(Name.COUNT);
    r.seen = heap.alloc(Name.COUNT);
    r.accs = heap.alloc((LEVELS + 1) << 3);
    r.keys = heap.alloc((LEVELS + 1) << 3);
    r.sides = heap.alloc(SideSlot.COUNT << 3);
    r.main = changetype<BlockSink>(heap.alloc(offsetof<BlockSink>()));
    r.front = changetype<BlockSink>(heap.alloc(offsetof<BlockSink>()));
    memory.fill(changetype<usize>(r.main), 0, offsetof<BlockSink>());
    memory.fill(changetype<usize>(r.front), 0, offsetof<BlockSink>());
    r.messageMark = changetype<SinkMark>(heap.alloc(offsetof<SinkMark>()));
    r.messageHashes = heap.alloc(MessageSlot.COUNT << 3);
    r.messageBytes = heap.alloc(MessageSlot.COUNT << 2);
    r.parts = heap.alloc(PARTS * offsetof<PartState>());
    for (let i: u32 = 0; i < PARTS; i++) {
      const part = changetype<PartState>(r.parts + i * offsetof<PartState>());
      part.mark = changetype<SinkMark>(heap.alloc(offsetof<SinkMark>()));
      part.slots = heap.alloc(SLOTS * offsetof<MediaSlot>());
    }
    return r;
  }

  dispose(): void {
    this.main.dispose();
    this.front.dispose();
    if (changetype<usize>(this.names)) this.names.dispose();
    for (let i: u32 = 0; i < PARTS; i++) {
      const part = changetype<PartState>(this.parts + i * offsetof<PartState>());
      heap.free(changetype<usize>(part.mark));
      heap.free(part.slots);
    }
    if (this.members) heap.free(this.members);
    if (this.media) heap.free(this.media);
    heap.free(this.parts);
    heap.free(this.messageBytes);
    heap.free(this.messageHashes);
    heap.free(changetype<usize>(this.messageMark));
    heap.free(changetype<usize>(this.front));
    heap.free(changetype<usize>(this.main));
    heap.free(this.sides);
    heap.free(this.keys);
    heap.free(this.accs);
    heap.free(this.seen);
    heap.free(this.samplingKinds);
    heap.free(this.kinds);
    heap.free(this.modelAt);
    heap.free(changetype<usize>(this.probe));
    heap.free(this.keepAt);
    heap.free(this.nameAt);
    heap.free(this.meanings);
    heap.free(this.contexts);
    heap.free(changetype<usize>(this));
  }

  /**
   * For a new body of API shape `shape` (shape.ts). `seed` is the process's secret. `blockTokens` 0: tokens are counted, no blocks made.
   * `spans`: report where members and media stand.
   */
  start(shape: u32, seed: u64, blockTokens: u32, maxBlocks: u32, spans: bool): void {
    this.shape = shape;
    this.seed = seed;
    this.spans = <u32>spans;
    this.cur = Ctx.Skip;
    this.next = Ctx.Skip;
    this.empty = 0;
    this.idList = 0;
    this.memberCount = 0;
    this.open1 = -1;
    this.open2 = -1;
    this.open3 = -1;
    this.objectStart = 0;
    this.objectEnd = 0;
    this.isObject = 0;
    clear(this.kinds, Name.COUNT);
    clear(this.samplingKinds, Name.COUNT);
    clear(this.seen, Name.COUNT);
    this.modelSize = 0;
    this.modelHash = 0;
    this.keptFor = 0;
    this.base = -1;
    this.omitLevel = -1;
    clear(this.sides, SideSlot.COUNT << 3);
    this.toolsBytes = 0;
    this.main.start(seed ^ K3, blockTokens, maxBlocks);
    this.front.start(seed ^ K3, blockTokens, maxBlocks);
    this.sink = this.main;
    this.partDepth = 0;
    this.mediaCount = 0;
    this.features = 0;
    this.prompts = 0;
    this.strange = 0;
    this.duplicates = 0;
    this.strict = 0;
    this.messages = 0;
    this.misshapen = 0;
  }

  /** This body is read strictly: `duplicates` is about every name of every object, and deep nesting is an error. After `start`. */
  beStrict(): void {
    if (!changetype<usize>(this.names)) this.names = NameSet.make();
    else this.names.start();
    this.strict = 1;
  }

  /** Gives memory back that only a huge body needs. */
  shrink(): void {
    this.main.shrink();
    this.front.shrink();
    if (this.memberRoom > 64) {
      heap.free(this.members);
      this.members = 0;
      this.memberRoom = 0;
    }
    if (this.mediaRoom > 64) {
      heap.free(this.media);
      this.media = 0;
      this.mediaRoom = 0;
    }
  }

  /** Whether the last top-level `name` was there, and was not null. */
  has(name: Name): bool {
    return <i32>load<u8>(this.kinds + name) > Kind.Null + 1;
  }

  /** Kind of the last top-level `name` plus 1; 0 when it was absent. */
  kindOf(name: Name): i32 {
    return load<u8>(this.kinds + name);
  }

  samplingKindOf(name: Name): i32 {
    return load<u8>(this.samplingKinds + name);
  }

  /** The larger of `n` and `best_of`, wherever the shape has them; 0 when none is a number. */
  get choices(): f64 {
    let most: f64 = 0;
    if (this.kindOf(Name.N) && this.count > most) most = this.count;
    if (this.kindOf(Name.BestOf) && this.bestOf > most) most = this.bestOf;
    if (this.samplingKindOf(Name.N) && this.samplingCount > most) most = this.samplingCount;
    if (this.samplingKindOf(Name.BestOf) && this.samplingBestOf > most) most = this.samplingBestOf;
    return most;
  }

  // ---- called by the scanner ----------------------------------------------------------------------------------------------------------------------------------

  /** Undecoded bytes of a string, quotes apart: they are what a compact rendering of the value would hold. */
  // @ts-ignore: decorator
  @inline
  raw(size: u32): void {
    this.compact += size;
  }

  /** Decoded bytes of the string, or bytes of the number, that is being read. */
  bytes(s: Scanner, mode: u32, from: usize, size: u32): void {
    if (mode & Mode.Text) this.sink.text(from, size);
    if (mode & Mode.Hash) s.hash.update(from, size);
    if (mode & Mode.Name) {
      if (this.nameSize < NAME_ROOM) copy(this.nameAt + this.nameSize, from, min(size, NAME_ROOM - this.nameSize));
      this.nameSize += size;
    }
    if (mode & Mode.Keep) {
      if (this.keepSize < KEEP) {
        const take = min(size, KEEP - this.keepSize);
        copy(this.keepAt + this.keepSize, from, take);
        this.keepSize += take;
      }
      if (this.probing && !this.probe.done) this.probe.feed(from, size);
    }
  }

  /** A token id of the list that is being read. */
  tokenId(id: u32): void {
    this.empty = 0;
    if (this.idsAreOnePrompt && !this.prompts) this.prompts = 1;
    this.main.id(id);
  }

  private contextAt(depth: u32): Ctx {
    return depth < CONTEXTS ? load<u8>(this.contexts + depth) : Ctx.Skip;
  }

  /** A member's name begins at `offset`. Returns the mode of its bytes. */
  name(s: Scanner, offset: u32): u32 {
    this.empty = 0;
    this.nameStart = offset;
    this.nameSize = 0;
    const ctx = this.contextAt(s.depth);
    if (this.base >= 0) {
      this.omitCompact = this.omitLevel < 0 ? this.compact : this.omitCompact;
      this.compact += 3; // two quotes and a colon; the comma or bracket in front of it is counted with the value
      return Mode.Name | Mode.Hash;
    }
    if (this.strict) return Mode.Name | Mode.Hash;
    return ctx == Ctx.Skip ? Mode.Skip : Mode.Name;
  }

  /** A member's name has been read. */
  named(s: Scanner): void {
    const depth = s.depth;
    const ctx = this.contextAt(depth);
    const name: Name = this.base >= 0 || ctx != Ctx.Skip ? nameOf(this.nameAt, this.nameSize) : Name.Other;
    if (this.strict) {
      const known = this.names.note(depth, s.hash.digest());
      if (known == 1) this.duplicates = 1;
      else if (known == 2) {
        s.fail(ScanError.TooManyMembers);
        return;
      }
    }
    if (this.base >= 0) {
      const level = <i32>depth - this.base;
      if (level <= LEVELS) store<u64>(this.keys + (<usize>level << 3), s.hash.digest());
      else this.fold(s.hash.digest());
      // A cache marker moves from turn to turn and is no part of the prompt.
      if (name == Name.CacheControl && this.omitLevel < 0) this.omitLevel = level;
    }
    this.nextName = name;
    this.next = this.meaning(s, ctx, name);
  }

  /** What the value of member `name` means inside a `ctx`. */
  private meaning(s: Scanner, ctx: Ctx, name: Name): Ctx {
    switch (ctx) {
      case Ctx.Top:
        return this.topMember(s, name);
      case Ctx.Xargs:
      case Ctx.ExtraArgs: {
        if (name != Name.KvTransferParams && name != Name.EcTransferParams) return Ctx.Skip;
        this.report(s, name, ctx == Ctx.Xargs ? Parent.Xargs : Parent.ExtraArgs);
        return Ctx.Control;
      }
      case Ctx.Sampling: {
        switch (name) {
          case Name.ExtraArgs:
            this.report(s, name, Parent.Sampling);
            return Ctx.ExtraArgs;
          case Name.MaxTokens:
          case Name.MinTokens:
          case Name.N:
          case Name.BestOf:
          case Name.PromptLogprobs:
          case Name.Logprobs:
            this.report(s, name, Parent.Sampling);
            return Ctx.SamplingScalar;
        }
        return Ctx.Skip;
      }
      case Ctx.Message: {
        switch (name) {
          case Name.Content:
            // The last one wins: its text starts where the first one's did.
            if (this.messageContents++) {
              this.sink.restore(this.messageMark);
              this.mediaCount = this.messageMedia;
            }
            return Ctx.Content;
          case Name.Role:
            this.slot = MessageSlot.Role;
            return Ctx.MessageSide;
          case Name.ToolCalls:
            this.slot = MessageSlot.ToolCalls;
            return Ctx.MessageSide;
          case Name.FunctionCall:
            this.slot = MessageSlot.FunctionCall;
            return Ctx.MessageSide;
          case Name.ReasoningContent:
            this.slot = MessageSlot.ReasoningContent;
            return Ctx.MessageSide;
          case Name.Reasoning:
            this.slot = MessageSlot.Reasoning;
            return Ctx.MessageSide;
          case Name.Arguments:
            this.slot = MessageSlot.Arguments;
            return Ctx.MessageSide;
          case Name.Output:
            this.slot = MessageSlot.Output;
            return Ctx.MessageSide;
          case Name.MessageName:
            this.slot = MessageSlot.Name;
            return Ctx.MessageSide;
          case Name.ToolCallId:
            this.slot = MessageSlot.ToolCallId;
            return Ctx.MessageSide;
          case Name.CallId:
            this.slot = MessageSlot.CallId;
            return Ctx.MessageSide;
        }
        return Ctx.Skip;
      }
      case Ctx.Part: {
        const part = this.part;
        switch (name) {
          case Name.Type:
            part.type = Name.Other;
            return Ctx.PartType;
          case Name.Text:
          case Name.Thinking:
            if (part.texts++) this.sink.restore(part.mark);
            return Ctx.PartText;
          case Name.Uuid:
            return Ctx.PartUuid;
          case Name.Content:
            // A tool result's own content. (A second one in the same part is not undone: no API has it twice, and the key only differs.)
            part.nested = 1;
            return this.partDepth < PARTS ? Ctx.Content : Ctx.Skip;
          case Name.ImageUrl:
            return this.mediaMember(0);
          case Name.AudioUrl:
            return this.mediaMember(1);
          case Name.VideoUrl:
            return this.mediaMember(2);
          case Name.InputAudio:
            return this.mediaMember(3);
          case Name.Source:
            return this.mediaMember(4);
        }
        return Ctx.Skip;
      }
      case Ctx.Features:
        if (name != Name.MmHashes) return Ctx.Skip;
        this.features = 0;
        return Ctx.FeatureHashes;
      case Ctx.FeatureHashes:
        return Ctx.FeatureList;
      case Ctx.Media: {
        // The last one wins, whatever its kind.
        const slot = this.mediaSlot(this.slot);
        if (name == Name.Url) {
          slot.urlSize = 0;
          slot.pixels = 0;
          return Ctx.MediaUrl;
        }
        if (name == Name.Data) {
          slot.dataHash = 0;
          slot.dataSize = 0;
          return Ctx.MediaData;
        }
        if (name == Name.Format || name == Name.MediaType) {
          slot.formatHash = 0;
          slot.formatSize = 0;
          return Ctx.MediaFormat;
        }
        return Ctx.Skip;
      }
    }
    return Ctx.Skip;
  }

  private topMember(s: Scanner, name: Name): Ctx {
    if (name == Name.Other) return Ctx.Skip;
    // What starts with bootstrap_ need not be one name.
    if (load<u8>(this.seen + name) && name != Name.Bootstrap) this.duplicates = 1;
    store<u8>(this.seen + name, 1);
    if (name <= LAST_REPORTED && name != Name.ExtraArgs) this.report(s, name, Parent.Top);
    switch (name) {
      case Name.Model:
      case Name.Stream:
      case Name.N:
      case Name.BestOf:
      case Name.PromptLogprobs:
      case Name.Echo:
      case Name.Logprobs:
      case Name.PromptEmbeds:
      case Name.PreviousResponseId:
      case Name.Conversation:
      case Name.Background:
        return Ctx.Scalar;
      case Name.KvTransferParams:
      case Name.EcTransferParams:
      case Name.Bootstrap:
        return Ctx.Control;
      case Name.VllmXargs:
        return Ctx.Xargs;
      case Name.SamplingParams:
        clear(this.samplingKinds, Name.COUNT);
        return Ctx.Sampling;
      case Name.Tools:
        this.slot = SideSlot.Tools;
        this.toolsBytes = 0;
        return Ctx.Side;
      case Name.Documents:
        this.slot = SideSlot.Documents;
        return Ctx.Side;
      case Name.ChatTemplate:
        this.slot = SideSlot.ChatTemplate;
        return Ctx.Side;
      case Name.ChatTemplateKwargs:
        this.slot = SideSlot.ChatTemplateKwargs;
        return Ctx.Side;
      case Name.MmProcessorKwargs:
        this.slot = SideSlot.MmProcessorKwargs;
        return Ctx.Side;
      case Name.CacheSalt:
        this.slot = SideSlot.CacheSalt;
        return Ctx.Side;
      case Name.LoraPath:
        this.slot = SideSlot.LoraPath;
        return Ctx.Side;
      case Name.TruncatePromptTokens:
        this.slot = SideSlot.TruncatePromptTokens;
        return Ctx.Side;
      case Name.TruncationSide:
        this.slot = SideSlot.TruncationSide;
        return Ctx.Side;
    }
    const ctx = shapeOf(this.shape).topMember(name);
    if (ctx == Ctx.Front) {
      this.front.reset();
      this.sink = this.front;
    } else if (ctx == Ctx.Features) {
      this.slot = SideSlot.Features;
      this.features = 0;
    } else if (ctx != Ctx.Skip) {
      // The last `messages` or `prompt` is the one that counts.
      this.main.reset();
      this.sink = this.main;
      this.mediaCount = 0;
      this.prompts = 1;
      this.strange = 0;
    }
    return ctx;
  }

  // @ts-ignore: decorator
  @inline
  private get part(): PartState {
    return changetype<PartState>(this.parts + (this.partDepth - 1) * offsetof<PartState>());
  }

  private mediaMember(slot: u32): Ctx {
    this.slot = slot;
    const at = this.mediaSlot(slot);
    memory.fill(changetype<usize>(at), 0, offsetof<MediaSlot>());
    return Ctx.Media;
  }

  // @ts-ignore: decorator
  @inline
  private mediaSlot(slot: u32): MediaSlot {
    return changetype<MediaSlot>(this.part.slots + slot * offsetof<MediaSlot>());
  }

  /** A known member begins: its span is open until its value ends. */
  private report(s: Scanner, name: Name, parent: Parent): void {
    if (!this.spans) return;
    if (this.memberCount == MAX_MEMBERS) {
      s.fail(ScanError.TooManyMembers);
      return;
    }
    if (this.memberCount == this.memberRoom) {
      this.memberRoom = this.memberRoom ? this.memberRoom << 1 : 32;
      this.members = heap.realloc(this.members ? this.members : heap.alloc(16), this.memberRoom * offsetof<MemberSpan>());
    }
    const index = <i32>this.memberCount;
    this.memberCount++;
    const m = this.memberAt(index);
    m.name = <u8>name;
    m.parent = <u8>parent;
    m.start = this.nameStart;
    m.valueStart = 0;
    m.valueEnd = 0;
    if (parent == Parent.Top) {
      m.parentIndex = -1;
      this.open1 = index;
    } else if (parent == Parent.ExtraArgs) {
      m.parentIndex = this.open2;
      this.open3 = index;
    } else {
      m.parentIndex = this.open1;
      this.open2 = index;
    }
  }

  // @ts-ignore: decorator
  @inline
  memberAt(index: i32): MemberSpan {
    return changetype<MemberSpan>(this.members + index * offsetof<MemberSpan>());
  }

  // @ts-ignore: decorator
  @inline
  mediaAt(index: u32): MediaSpan {
    return changetype<MediaSpan>(this.media + index * offsetof<MediaSpan>());
  }

  /** What an element of an array means. */
  private element(parent: Ctx, kind: Kind): Ctx {
    switch (parent) {
      case Ctx.Messages:
        this.messages++;
        if (kind != Kind.Object) this.misshapen = 1;
        return kind == Kind.Object ? Ctx.Message : kind == Kind.String ? Ctx.Text : Ctx.Skip;
      case Ctx.Content:
      case Ctx.Front:
        return kind == Kind.Object ? (this.partDepth < PARTS ? Ctx.Part : Ctx.Skip) : kind == Kind.String ? Ctx.Text : Ctx.Skip;
      case Ctx.Prompt: {
        if (kind == Kind.String) return Ctx.PromptText;
        if (kind == Kind.Array) return Ctx.PromptIds;
        if (kind == Kind.Number) return Ctx.Id;
        this.strange = 1;
        return Ctx.Skip;
      }
      case Ctx.PromptIds:
      case Ctx.Ids: {
        if (kind == Kind.Number) return Ctx.Id;
        this.strange = 1;
        return Ctx.Skip;
      }
      case Ctx.FeatureList: {
        if (kind == Kind.String) this.features++;
        return Ctx.Skip;
      }
    }
    return Ctx.Skip;
  }

  /** A value of `kind` begins at `offset`. Returns the mode of its bytes, for strings and numbers. */
  begin(s: Scanner, kind: Kind, offset: u32): u32 {
    const depth = s.depth;
    let ctx: Ctx = Ctx.Skip;
    if (!depth) {
      if (kind == Kind.Object) {
        ctx = Ctx.Top;
        this.isObject = 1;
        this.objectStart = offset;
      }
    } else if (s.inObject) {
      ctx = this.next;
      if (this.spans && depth <= 3) {
        const index = depth == 1 ? this.open1 : depth == 2 ? this.open2 : this.open3;
        if (index >= 0) {
          const m = this.memberAt(index);
          if (!m.valueEnd) m.valueStart = offset;
        }
      }
    } else {
      const parent = this.contextAt(depth);
      if (parent != Ctx.Skip) ctx = this.element(parent, kind);
    }
    this.cur = ctx;
    this.empty = 0;
    this.probing = 0;
    let mode: u32 = Mode.Skip;
    if (this.base >= 0) {
      this.compact += 1 + (kind == Kind.String ? 2 : 0) + (kind == Kind.Null || kind == Kind.True ? 4 : kind == Kind.False ? 5 : 0);
      mode = Mode.Hash;
    }
    if (this.strict) this.checkKind(ctx, kind);
    switch (ctx) {
      case Ctx.Skip:
        break;
      case Ctx.Scalar:
      case Ctx.SamplingScalar:
        this.keepSize = 0;
        this.scalarName = this.nextName;
        mode |= this.nextName == Name.Model ? Mode.Keep | Mode.Hash : Mode.Keep;
        break;
      case Ctx.Side:
      case Ctx.MessageSide:
      case Ctx.Features:
        this.region(depth);
        mode = Mode.Hash;
        break;
      case Ctx.Part:
        if (this.base < 0) this.region(depth);
        break;
      case Ctx.PartType:
        this.keepSize = 0;
        mode |= Mode.Keep;
        break;
      case Ctx.Content:
      case Ctx.Text:
      case Ctx.Messages:
      case Ctx.Front:
      case Ctx.Prompt:
      case Ctx.PromptText:
        if (kind == Kind.String) mode = Mode.Text;
        break;
      case Ctx.PartText: {
        const part = this.part;
        this.sink.save(part.mark);
        this.keepSize = 0;
        if (kind == Kind.String) mode = this.sink == this.front ? Mode.Text | Mode.Keep : Mode.Text;
        break;
      }
      // A bare string stands for its URL (Responses' input_image).
      case Ctx.Media:
      case Ctx.MediaUrl:
      case Ctx.MediaData:
        if (kind == Kind.String) {
          this.keepSize = 0;
          this.probing = 1;
          this.probe.start(ctx == Ctx.MediaData);
          mode |= Mode.Keep;
        }
        break;
      case Ctx.Id:
        if (kind == Kind.Number) {
          this.id = 0;
          mode = Mode.Id;
        }
        break;
      case Ctx.Ids:
        if (kind != Kind.Array) this.strange = 1;
        break;
    }
    if (ctx == Ctx.Prompt || ctx == Ctx.Messages) {
      if (kind == Kind.Array) {
        if (ctx == Ctx.Prompt) this.prompts = 0;
      } else if (kind == Kind.Null) this.prompts = 0;
      else if (kind != Kind.String) this.strange = 1;
    }
    return mode;
  }

  /** What the reference's parsers refuse of messages (scheduler §6.7): anything but a list of objects whose role is a text and whose content a text, a list or null. */
  private checkKind(ctx: Ctx, kind: Kind): void {
    if (ctx == Ctx.MessageSide) {
      if (this.slot == MessageSlot.Role && kind != Kind.String) this.misshapen = 1;
    } else if (ctx == Ctx.Content) {
      if (kind != Kind.String && kind != Kind.Array && kind != Kind.Null) this.misshapen = 1;
    } else if (ctx == Ctx.Messages) {
      if (kind != Kind.Array && (kind != Kind.String || this.shape != ShapeId.Responses)) this.misshapen = 1;
      else if (kind == Kind.String) this.messages = 1;
    }
  }

  /** Whether the body, read strictly, has what its shape must have (scheduler §6.7, RQ-02, RQ-03): messages, or a prompt that is one. */
  get hasPrompt(): bool {
    if (this.misshapen || this.strange || !this.isObject) return false;
    if (load<u8>(this.seen + Name.PromptEmbeds) || this.shape == ShapeId.SglangGenerate) return true;
    const shape = shapeOf(this.shape);
    const list = shape.topMember(Name.Messages) == Ctx.Messages ? Name.Messages : shape.topMember(Name.Input) == Ctx.Messages ? Name.Input : Name.Other;
    return list != Name.Other && load<u8>(this.seen + list) ? this.messages > 0 : this.prompts > 0;
  }

  /** From here to the value's end everything goes into one hash. */
  private region(depth: u32): void {
    this.base = <i32>depth;
    this.compact = 0;
    this.omitLevel = -1;
  }

  /** A container has been entered; `begin` was called for it before. */
  opened(s: Scanner, object: u32): void {
    const depth = s.depth;
    if (s.failed) return;
    let ctx: Ctx = this.cur;
    this.empty = 1;
    if (this.strict) {
      if (depth > STRICT_DEPTH) {
        s.fail(ScanError.TooDeep);
        return;
      }
      if (object) this.names.enter(depth);
    }
    if (depth < CONTEXTS) {
      store<u8>(this.meanings + depth, <u8>ctx);
      if (!this.contains(ctx, object)) ctx = Ctx.Skip;
      store<u8>(this.contexts + depth, <u8>ctx);
    } else ctx = Ctx.Skip;
    this.idList = <u32>(ctx == Ctx.Ids || ctx == Ctx.PromptIds || ctx == Ctx.Prompt);
    this.idsAreOnePrompt = <u32>(ctx == Ctx.Prompt);
    if (this.base >= 0) {
      const level = <i32>depth - this.base;
      if (level <= LEVELS) store<u64>(this.accs + (<usize>level << 3), object ? K1 : K5);
      else this.fold(object ? K1 : K5);
    }
    if (ctx == Ctx.Message) {
      this.messageBlock = this.sink.blocks;
      this.messageContents = 0;
      this.messageMedia = this.mediaCount;
      this.sink.save(this.messageMark);
      clear(this.messageHashes, MessageSlot.COUNT << 3);
      clear(this.messageBytes, MessageSlot.COUNT << 2);
    } else if (ctx == Ctx.Part) {
      this.partDepth++;
      const part = this.part;
      part.start = s.offset;
      part.type = Name.Other;
      part.texts = 0;
      part.block = this.sink.blocks;
      part.uuid = 0;
      part.compact = this.compact;
      part.nested = 0;
      clear(part.slots, SLOTS * offsetof<MediaSlot>());
      this.sink.save(part.mark);
    }
  }

  /** Whether a container of this form keeps its meaning: an object where a list is due means nothing. */
  private contains(ctx: Ctx, object: u32): bool {
    switch (ctx) {
      case Ctx.Messages:
      case Ctx.Content:
      case Ctx.Front:
      case Ctx.Prompt:
      case Ctx.PromptIds:
      case Ctx.Ids:
      case Ctx.FeatureList:
        return !object;
      case Ctx.Top:
      case Ctx.Xargs:
      case Ctx.Sampling:
      case Ctx.ExtraArgs:
      case Ctx.Message:
      case Ctx.Part:
      case Ctx.Media:
      case Ctx.Features:
      case Ctx.FeatureHashes:
        return <bool>object;
    }
    return false;
  }

  /** The innermost container ends; its level is still the current one. */
  closing(s: Scanner): void {
    const depth = s.depth;
    this.closedCtx = depth < CONTEXTS ? load<u8>(this.meanings + depth) : Ctx.Skip;
    this.idList = 0;
    if (this.base < 0) return;
    this.compact += 1 + this.empty;
    const level = <i32>depth - this.base;
    if (level <= LEVELS) this.closedHash = avalanche(load<u64>(this.accs + (<usize>level << 3)));
    else this.closedHash = K3;
    // An empty list or object beside none: the same prompt.
    if (level == 1 && this.empty) this.closedHash = 0;
    this.empty = 0;
  }

  /** Beyond LEVELS the order of the text decides. */
  private fold(value: u64): void {
    const at = this.accs + (<usize>LEVELS << 3);
    store<u64>(at, mix(load<u64>(at), value));
  }

  /** A value has ended behind `end`; the current level is the one that holds it. */
  end(s: Scanner, kind: Kind, end: u32): void {
    const depth = s.depth;
    const ctx: Ctx = kind >= Kind.Object ? this.closedCtx : this.cur;
    let hash: u64 = 0;
    if (this.base >= 0) {
      hash = this.valueHash(s, kind, ctx);
      const level = <i32>depth - this.base;
      if (level == 0) {
        this.base = -1;
      } else {
        const omitted = this.omitLevel == level && s.inObject;
        if (omitted) {
          this.omitLevel = -1;
          this.compact = this.omitCompact;
        } else if (level > LEVELS) this.fold(hash);
        else {
          const at = this.accs + (<usize>level << 3);
          const acc = load<u64>(at);
          // Members of an object in any order; elements of a list in theirs. Prompt text stands in the blocks.
          if (s.inObject) store<u64>(at, ctx == Ctx.PartText ? acc : acc + mix(load<u64>(this.keys + (<usize>level << 3)), hash));
          else store<u64>(at, mix(acc, hash));
        }
      }
    }
    if (this.spans && depth && depth <= 3 && s.inObject) this.spanned(depth, kind, end);
    if (ctx != Ctx.Skip) this.valueEnded(s, ctx, kind, end, hash);
  }

  private valueHash(s: Scanner, kind: Kind, ctx: Ctx): u64 {
    switch (kind) {
      case Kind.String:
        return ctx == Ctx.PartText || ctx == Ctx.Content || ctx == Ctx.Text ? K5 : mix(s.hash.digest(), K1);
      case Kind.Number:
        return mix(s.hash.digest(), K3);
      case Kind.Object:
      case Kind.Array:
        return this.closedHash;
    }
    // Not from where an object's or a list's hash begins: null is no empty list.
    return avalanche(K2 + kind);
  }

  private spanned(depth: u32, kind: Kind, end: u32): void {
    const index = depth == 1 ? this.open1 : depth == 2 ? this.open2 : this.open3;
    if (index < 0) return;
    const m = this.memberAt(index);
    m.valueEnd = end;
    m.kind = <u8>kind;
    if (depth == 1) this.open1 = -1;
    else if (depth == 2) this.open2 = -1;
    else this.open3 = -1;
  }

  private valueEnded(s: Scanner, ctx: Ctx, kind: Kind, end: u32, hash: u64): void {
    switch (ctx) {
      case Ctx.Top:
        this.objectEnd = end;
        return;
      case Ctx.Scalar:
        this.scalar(s, kind, this.kinds);
        return;
      case Ctx.SamplingScalar:
        this.scalar(s, kind, this.samplingKinds);
        return;
      case Ctx.Side:
      case Ctx.Features: {
        if (kind == Kind.Null) hash = 0;
        store<u64>(this.sides + (<usize>this.slot << 3), hash);
        if (this.slot == SideSlot.Tools) this.toolsBytes = hash ? this.compact : 0;
        return;
      }
      case Ctx.MessageSide: {
        if (kind == Kind.Null) hash = 0;
        store<u64>(this.messageHashes + (<usize>this.slot << 3), hash);
        const size = !hash || this.slot >= <u32>MessageSlot.COUNTED ? 0 : kind == Kind.String ? s.hash.length : this.compact;
        store<u32>(this.messageBytes + (<usize>this.slot << 2), size);
        return;
      }
      case Ctx.Message:
        this.endMessage();
        return;
      case Ctx.Part:
        this.endPart(end, hash);
        return;
      case Ctx.PartType:
        this.part.type = kind == Kind.String ? nameOf(this.keepAt, this.keepSize) : Name.Other;
        return;
      case Ctx.PartText:
        // A client's billing note changes with every call and is no part of the prompt (scheduler §4.1, PX-33).
        if (this.sink == this.front && isBillingNote(this.keepAt, this.keepSize)) this.sink.restore(this.part.mark);
        return;
      case Ctx.PartUuid:
        this.part.uuid = kind == Kind.String ? hash : 0;
        return;
      case Ctx.Media:
      case Ctx.MediaUrl: {
        if (kind != Kind.String) return;
        const slot = this.mediaSlot(this.slot);
        slot.urlHash = s.hash.digest();
        slot.urlSize = s.hash.length;
        slot.pixels = this.probe.pixels;
        return;
      }
      case Ctx.MediaData: {
        if (kind != Kind.String) return;
        const slot = this.mediaSlot(this.slot);
        slot.dataHash = mix(s.hash.digest(), K1);
        slot.dataSize = s.hash.length;
        slot.pixels = this.probe.pixels;
        return;
      }
      case Ctx.MediaFormat: {
        if (kind != Kind.String) return;
        const slot = this.mediaSlot(this.slot);
        slot.formatHash = mix(s.hash.digest(), K3);
        slot.formatSize = s.hash.length;
        return;
      }
      case Ctx.PromptText:
      case Ctx.PromptIds:
        this.prompts++;
        this.main.endSegment();
        return;
      case Ctx.Id: {
        // All ids of a list are one prompt; those behind texts, which no engine takes, add none and take none away.
        if (this.contextAt(s.depth) == Ctx.Prompt && !this.prompts) this.prompts = 1;
        if (kind == Kind.Number && this.id <= 0xffffffff) this.main.id(<u32>this.id);
        else this.strange = 1;
        return;
      }
    }
  }

  /** A remembered scalar, or a value of another kind under its name, has ended. */
  private scalar(s: Scanner, kind: Kind, kinds: usize): void {
    const name: Name = this.scalarName;
    store<u8>(kinds + name, <u8>kind + 1);
    if (name == Name.Model) {
      this.modelSize = 0;
      this.modelHash = 0;
      if (kind != Kind.String) return;
      this.modelSize = this.keepSize;
      this.modelHash = s.hash.digest();
      copy(this.modelAt, this.keepAt, this.keepSize);
    } else if (name == Name.PreviousResponseId || name == Name.Conversation) {
      if (kind == Kind.String) this.keptFor = idHash(this.keepAt, this.keepSize);
    } else if (name == Name.N || name == Name.BestOf) {
      // An engine's schema turns "3" and 3.0 into 3.
      const value: f64 = kind == Kind.Number || kind == Kind.String ? numberOf(this.keepAt, this.keepSize) : 0;
      if (kinds == this.kinds) {
        if (name == Name.N) this.count = value;
        else this.bestOf = value;
      } else if (name == Name.N) this.samplingCount = value;
      else this.samplingBestOf = value;
    } else if (name == Name.Background || name == Name.Echo) {
      // 0 is false, too.
      if ((kind == Kind.Number || kind == Kind.String) && numberOf(this.keepAt, this.keepSize) == 0 && isNumeric(this.keepAt, this.keepSize)) store<u8>(kinds + name, Kind.False + 1);
    }
  }

  private endMessage(): void {
    let salt: u64 = 0;
    let size: u32 = 0;
    for (let i: u32 = 0; i < <u32>MessageSlot.COUNT; i++) {
      const hash = load<u64>(this.messageHashes + (<usize>i << 3));
      if (hash) salt += mix(K5 + i, hash);
      size += load<u32>(this.messageBytes + (<usize>i << 2));
    }
    if (salt) this.sink.salt(this.messageBlock, salt);
    if (size) this.sink.room(size);
  }

  private endPart(end: u32, hash: u64): void {
    const part = this.part;
    const type: Name = part.type;
    const slotIndex: i32 = type == Name.ImageUrl || type == Name.InputImage ? 0 : type == Name.AudioUrl ? 1 : type == Name.VideoUrl ? 2 : type == Name.InputAudio ? 3 : type == Name.Image ? 4 : -1;
    if (slotIndex >= 0 && shapeOf(this.shape).isMedia(type)) {
      const slot = changetype<MediaSlot>(part.slots + slotIndex * offsetof<MediaSlot>());
      const url = slot.urlSize > 0 && type != Name.InputAudio;
      // The place holder follows the medium; `detail` and the like follow the whole part only.
      const id = url ? slot.urlHash : slot.dataSize ? slot.dataHash + slot.formatHash : part.uuid ? part.uuid : hash;
      const tokens = mediaTokens(type, url ? slot.urlSize : 0, slot.dataSize + (type == Name.InputAudio ? slot.formatSize : 0), slot.pixels);
      this.sink.align();
      this.sink.repeat(<u32>(id ^ (id >> 32)), tokens);
      // `hash` knows what members there are, `id` which of two of one name counts. Nothing is encoded for the text in front: no API has media there.
      const mergeable = !part.texts && (url || (type == Name.Image && slot.dataSize));
      if (this.sink != this.front) this.addMedia(type, part.start, end, tokens, mergeable ? mix(hash ^ part.uuid, id) | 1 : 0);
    } else if (!part.texts && hash) {
      // A tool's use or result, a file: the engine renders it.
      this.sink.salt(part.block, mix(K4, hash));
      if (!part.nested) this.sink.room(this.compact - part.compact);
    }
    this.partDepth--;
  }

  private addMedia(type: Name, start: u32, end: u32, tokens: u32, key: u64): void {
    if (this.mediaCount == MAX_MEDIA) return;
    if (this.mediaCount == this.mediaRoom) {
      this.mediaRoom = this.mediaRoom ? this.mediaRoom << 1 : 8;
      this.media = heap.realloc(this.media ? this.media : heap.alloc(16), this.mediaRoom * offsetof<MediaSpan>());
    }
    const m = this.mediaAt(this.mediaCount++);
    m.type = type;
    m.start = start;
    m.end = end;
    m.tokens = tokens;
    m.key = key;
  }
}

const BILLING = memory.data(32);
const BILLING_SIZE: u32 = <u32>String.UTF8.encodeUnsafe(changetype<usize>("x-anthropic-billing-header"), 26, BILLING);

function isBillingNote(at: usize, size: u32): bool {
  return size >= BILLING_SIZE && memory.compare(at, BILLING, BILLING_SIZE) == 0;
}
