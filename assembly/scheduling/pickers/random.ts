// `random-picker` (scheduler §2.3).
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Pass, Picks } from "../pass";
import { Plugin } from "../plugin";
import { Picker, takeAny } from "./picker";

export class RandomPicker extends Picker {
  static read(parameters: Node, build: Build): Plugin {
    return new RandomPicker(Picker.readMax(parameters));
  }

  pick(pass: Pass, picks: Picks): void {
    takeAny(pass, min(this.max, pass.count), picks);
  }
}
