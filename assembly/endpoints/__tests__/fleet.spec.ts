import { Fleet } from "../index";

describe("the fleet", () => {
  it("knows the place of every id, and of no other", () => {
    for (let n = 0; n < 200; n += 7) {
      const ids = new StaticArray<u32>(n);
      for (let i = 0; i < n; i++) ids[i] = <u32>(i * 1024 + 1);
      const fleet = new Fleet(ids);
      for (let i = 0; i < n; i++) expect(fleet.place(ids[i])).toBe(i);
      for (let other: u32 = 2; other < 900; other++) if (fleet.place(other) != -1) expect(other).toBe(0, "is no member");
      expect(fleet.place(u32.MAX_VALUE)).toBe(-1);
    }
  });

  it("an endpoint without an id has no place, and neither has 0", () => {
    const fleet = new Fleet([0, 5, 0]);
    expect(fleet.place(0)).toBe(-1);
    expect(fleet.place(5)).toBe(1);
    expect(new Fleet([]).place(0)).toBe(-1);
    expect(fleet.live(0, 1)).toBe(-1);
  });

  it("what was touched below an endpoint's floor does not count", () => {
    const fleet = new Fleet([5, 6]);
    fleet.floors[1] = 10;
    expect(fleet.live(5, 0)).toBe(0);
    expect(fleet.live(6, 9)).toBe(-1);
    expect(fleet.live(6, 10)).toBe(1);
    expect(fleet.live(7, 10)).toBe(-1);
  });
});
