/** Features of a row as the colours of a picture. */
export interface Picture {
  height: number;
  width: number;
  /** Red, green, blue and opacity of each pixel, 0…255, row by row. */
  rgba: Uint8ClampedArray<ArrayBuffer>;
}

interface Shape {
  /** [height, width], or [height, width, 3]. */
  shape: readonly number[];
  /** The values shown as black and as white; null: the least and the greatest there are. */
  range: readonly number[] | null | undefined;
  /** [3, height, width] where each colour is a picture of its own; else the colours of a pixel stand together. */
  inputShape: readonly number[];
}

/** Null where the numbers do not fill the picture. */
export function pictureOf(values: readonly number[], { shape, range, inputShape }: Shape): Picture | null {
  const [height = 0, width = 0, nColours = 1] = shape;
  const nPixels = height * width;
  if (nPixels === 0 || values.length !== nPixels * nColours) return null;
  const [low, high] = range ?? extent(values);
  const scale = 255 / ((high ?? 1) - (low ?? 0) || 1);
  const isPlanar = nColours === 3 && inputShape.length === 3 && inputShape[0] === 3;
  const [perPixel, perColour] = isPlanar ? [1, nPixels] : [nColours, 1];
  const rgba = new Uint8ClampedArray(4 * nPixels);
  for (let i = 0; i < nPixels; i++) {
    for (let colour = 0; colour < 3; colour++) {
      const at = i * perPixel + (nColours === 3 ? colour * perColour : 0);
      rgba[4 * i + colour] = ((values[at] ?? 0) - (low ?? 0)) * scale;
    }
    rgba[4 * i + 3] = 255;
  }
  return { height, width, rgba };
}

function extent(values: readonly number[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}
