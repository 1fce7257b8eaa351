/** Who labels, how fast, and where the labels are: saved, waiting or refused. */
import { Button } from "../../components/Button";
import { many } from "../../formats";
import { useNow } from "../../hooks/useNow";
import { unsent } from "../../labelling/queue";
import type { Snapshot } from "../../labelling/session";

interface Props {
  now: Snapshot;
  annotator: string;
  onRetry: () => void;
}

export function SaveState({ now, annotator, onRetry }: Props) {
  const { kept, sending, rate } = now;
  const n = unsent(kept).length;
  const time = useNow(sending.kind === "waiting", 500);
  const isTroubled = sending.kind === "waiting" || sending.kind === "stuck" || sending.kind === "signed-out";
  const refused = kept.refused.length > 0 ? ` · ${kept.refused.length} refused` : "";
  return (
    <div className="save-state figures">
      <p>
        {annotator}
        {rate !== null && ` · ${rate} a minute`}
        {" · "}
        <span className={isTroubled ? "warn" : kept.refused.length > 0 ? "bad" : undefined}>
          {n === 0
            ? `saved${refused}`
            : sending.kind === "sending"
              ? `saving ${n}${refused}`
              : `${n} waiting${refused}`}
        </span>
      </p>
      <div role="status">
        {isTroubled && n > 0 && (
          <p className="warn">
            {reason()}{" "}
            <Button kind="link" onClick={onRetry}>
              Try now
            </Button>
          </p>
        )}
      </div>
    </div>
  );

  function reason(): string {
    const kept = `${many(n, "label")} kept in this browser.`;
    switch (sending.kind) {
      case "waiting": {
        const seconds = Math.max(1, Math.ceil((sending.until - time) / 1000));
        const who = sending.why === "busy" ? "The service is busy" : "The service does not answer";
        return `${who}: ${kept} Next try in ${seconds} s.`;
      }
      case "signed-out":
        return `Signed out: ${kept} They are sent when you sign in.`;
      case "stuck":
        return `${sending.detail} ${kept}`;
      default:
        return "";
    }
  }
}
