import { describe, expect, it } from "vitest";
import { pictureOf } from "./pixels";

const colours = (rgba: Uint8ClampedArray | undefined) =>
  Array.from({ length: (rgba?.length ?? 0) / 4 }, (_, i) => Array.from(rgba?.slice(4 * i, 4 * i + 3) ?? []));

describe("pictureOf", () => {
  it("shows low as black, high as white, and what lies outside as the nearer of the two", () => {
    const picture = pictureOf([0, 8, 16, 20, -3, 4], { shape: [2, 3], range: [0, 16], inputShape: [6] });
    expect([picture?.height, picture?.width]).toEqual([2, 3]);
    expect(colours(picture?.rgba).map(([red]) => red)).toEqual([0, 128, 255, 255, 0, 64]);
    expect(Array.from(picture?.rgba ?? []).filter((_, i) => i % 4 === 3)).toEqual([
      255, 255, 255, 255, 255, 255,
    ]);
  });

  it("takes the least and the greatest of the item where no range is given", () => {
    const picture = pictureOf([10, 20, 15, 10], { shape: [2, 2], range: null, inputShape: [4] });
    expect(colours(picture?.rgba).map(([red]) => red)).toEqual([0, 255, 128, 0]);
  });

  it("is black, not undefined, where all numbers are the same", () => {
    const picture = pictureOf([7, 7], { shape: [1, 2], range: null, inputShape: [2] });
    expect(colours(picture?.rgba)).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ]);
  });

  it("reads colours that stand together, and colours that are pictures of their own", () => {
    const both = [
      [255, 0, 51],
      [0, 255, 102],
    ];
    const together = pictureOf([1, 0, 0.2, 0, 1, 0.4], { shape: [1, 2, 3], range: [0, 1], inputShape: [6] });
    expect(colours(together?.rgba)).toEqual(both);
    const apart = pictureOf([1, 0, 0, 1, 0.2, 0.4], {
      shape: [1, 2, 3],
      range: [0, 1],
      inputShape: [3, 1, 2],
    });
    expect(colours(apart?.rgba)).toEqual(both);
  });

  it("refuses numbers that do not fill the picture", () => {
    expect(pictureOf([1, 2, 3], { shape: [2, 2], range: null, inputShape: [3] })).toBeNull();
  });
});
