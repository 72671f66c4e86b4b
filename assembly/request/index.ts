// request/: bytes in, RequestView out. Knows nothing of Envoy.
export { Scanner, ScanError, Kind } from "./scanner";
export { MediaSpan, MemberSpan } from "./reader";
export { Name, spelling } from "./names";
export { ShapeId, shapeOf, shapeOfPath, shapesOf } from "./shape";
export { KeySpan, RequestView, Whole } from "./view";
export { MediaEstimate, useEstimate } from "./media";
export { decimalOf } from "./numbers";
