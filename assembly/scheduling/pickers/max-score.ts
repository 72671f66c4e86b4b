// `max-score-picker` (scheduler §2.3): the highest scores, equal ones at random.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Pass, Picks } from "../pass";
import { Plugin } from "../plugin";
import { Picker, takeBest } from "./picker";

export class MaxScorePicker extends Picker {
  static read(parameters: Node, build: Build): Plugin {
    return new MaxScorePicker(Picker.readMax(parameters));
  }

  pick(pass: Pass, picks: Picks): void {
    takeBest(pass, pass.total, min(this.max, pass.count), picks);
  }
}
