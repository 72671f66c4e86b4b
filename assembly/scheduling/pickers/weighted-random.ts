// `weighted-random-picker` (scheduler §2.3): as likely as the score is high, by the A-Res keys U^(1/score).
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Pass, Picks } from "../pass";
import { Plugin } from "../plugin";
import { Picker, takeAny, takeBest } from "./picker";

export class WeightedRandomPicker extends Picker {
  static read(parameters: Node, build: Build): Plugin {
    return new WeightedRandomPicker(Picker.readMax(parameters));
  }

  pick(pass: Pass, picks: Picks): void {
    const n = pass.count;
    const count = min(this.max, n);
    const keys = pass.raw;
    let weighted = false;
    for (let i = 0; i < n; i++) {
      const score = unchecked(pass.total[i]);
      // ln(U) / score orders as U^(1/score) does, and does not round to 1 or 0 for large and small scores.
      let key = -Infinity;
      if (score > 0) {
        key = Math.log(pass.random.unit()) / score;
        weighted = true;
      }
      unchecked((keys[i] = key));
    }
    if (weighted) takeBest(pass, keys, count, picks);
    else takeAny(pass, count, picks);
  }
}
