/** How far something is: a bar, and the same in words. `total` of 0 means that nobody knows. */
import "./Progress.css";

interface Props {
  done: number;
  total: number;
  label: string;
  children?: React.ReactNode;
}

export function Progress({ done, total, label, children }: Props) {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  return (
    <div className="progress">
      <div
        className="track"
        role="progressbar"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={total > 0 ? Math.round(100 * share) : undefined}
      >
        <div className="filled" style={{ width: `${100 * share}%` }} />
      </div>
      {children !== undefined && <p className="quiet figures">{children}</p>}
    </div>
  );
}
