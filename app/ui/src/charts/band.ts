/** The space between two lines, drawn as one shape behind them. */
import { faint } from "./theme";

export interface Between {
  x: number;
  low: number;
  high: number;
}

interface Drawing {
  coord: (at: [number, number]) => [number, number];
}

export function band(points: readonly Between[], colour: string, alpha = 0.16): Record<string, unknown> {
  return {
    type: "custom",
    silent: true,
    clip: true,
    z: 1,
    tooltip: { show: false },
    data: points.map(({ x, low, high }) => [x, low, high]),
    encode: { x: 0, y: [1, 2] },
    renderItem: ({ dataIndex }: { dataIndex: number }, { coord }: Drawing) => {
      if (dataIndex > 0) return null;
      const above = points.map(({ x, high }) => coord([x, high]));
      const below = points.map(({ x, low }) => coord([x, low])).reverse();
      return {
        type: "polygon",
        shape: { points: [...above, ...below] },
        style: { fill: faint(colour, alpha) },
      };
    },
  };
}
