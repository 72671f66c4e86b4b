// Base of the filters that look at labels only: the answer per endpoint is worked out once per configuration push.
import { EndpointTable } from "../../endpoints/table";
import { Plugin, PluginKind } from "../plugin";

export abstract class LabelFilter extends Plugin {
  private bitmap: StaticArray<u8> = new StaticArray<u8>(0);

  constructor() {
    super(PluginKind.Filter);
  }

  abstract accepts(labels: Map<string, string>): bool;

  prepare(table: EndpointTable): void {
    this.bitmap = new StaticArray<u8>(table.count);
    for (let i = 0; i < table.count; i++) this.bitmap[i] = this.accepts(table.labels[i]) ? 1 : 0;
  }

  labelBitmap(): StaticArray<u8> | null {
    return this.bitmap;
  }
}
