/** A learning curve of the size of a word: only its way; the numbers stand beside it. */
import "./Sparkline.css";

interface Props {
  /** Labels and metric, in the order of time; a metric that is not known is passed over. */
  points: readonly { x: number; y: number | null | undefined }[];
  /** What it shows, in words. */
  label: string;
  width?: number;
  height?: number;
}

const MARGIN = 3;

/** Where the points lie in a box with the origin at its upper left; flat ones in the middle. */
export function placed(points: Props["points"], width: number, height: number): [number, number][] {
  const known = points.flatMap(({ x, y }) =>
    typeof y === "number" && Number.isFinite(y) ? [[x, y] as const] : [],
  );
  const scale = (values: number[], room: number) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value: number) =>
      MARGIN + (room - 2 * MARGIN) * (high > low ? (value - low) / (high - low) : 0.5);
  };
  const across = scale(
    known.map(([x]) => x),
    width,
  );
  const up = scale(
    known.map(([, y]) => y),
    height,
  );
  return known.map(([x, y]) => [across(x), height - up(y)]);
}

export function Sparkline({ points, label, width = 96, height = 28 }: Props) {
  const at = placed(points, width, height);
  const last = at.at(-1);
  return (
    <svg
      className="sparkline"
      role="img"
      aria-label={label}
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
    >
      {at.length > 1 && (
        <polyline
          points={at.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ")}
          fill="none"
          stroke="currentColor"
          strokeWidth="1.5"
          strokeLinejoin="round"
        />
      )}
      {last !== undefined && <circle cx={last[0]} cy={last[1]} r="2.5" fill="currentColor" />}
    </svg>
  );
}
