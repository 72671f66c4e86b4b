// host/: the proxy-wasm host as typed functions. The only room that imports the ABI.
export { malloc, resetArena, arenaMark, arenaRelease } from "./arena";
export { BufferKind, pieceAt, pieceSize, readPiece } from "./buffers";
export { Bytes, isText, Writer } from "./bytes";
export { nowMs, random64, setTick } from "./clock";
export { ContextFactory, createContext, DataStatus, deleteContext, HeadersStatus, RootContext, rootContext, StreamContext, streamContext, useContexts } from "./contexts";
export { findHeader, getHeader, HeaderMap, readMap, removeHeader, setHeader, valueAt, valueNumber, valueSize } from "./headers";
export { SharedStore } from "./shared";
export { Counter, Gauge, settleCounters } from "./stats";
export { log, LogLevel } from "./status";
export { getProperty, HeaderPairs, httpCall, propertyAt, propertySize, sendLocalResponse, setProperty } from "./stream";
