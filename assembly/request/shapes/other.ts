import { Shape } from "../shape";

/** Every other JSON body: only what a stage must remove or refuse is looked for. */
export class OtherShape extends Shape {
  constructor() {
    super("", "", false);
  }
}
