/** The last ten that were answered; one is clicked to correct it. */
import type { Project } from "../../api/types";
import { Thumbnail } from "../../components/Thumbnail";
import type { Recent } from "../../labelling/queue";
import type { Work } from "../../labelling/reducer";
import { sayingText } from "../../labelling/saying";

interface Props {
  recent: readonly Recent[];
  known: Readonly<Record<number, Work>>;
  lookingAt: number | null;
  project: Project;
  onLook: (row: number | null) => void;
}

export function Strip({ recent, known, lookingAt, project, onLook }: Props) {
  if (recent.length === 0) return null;
  return (
    <ol className="strip" aria-label="Last answers, oldest first">
      {recent.map((one) => {
        const text = sayingText(one.saying, project.display?.unit);
        const isHere = one.row === lookingAt;
        return (
          <li key={one.row}>
            <button
              type="button"
              aria-pressed={isHere}
              aria-label={`Correct ${one.key}, ${text}`}
              title={`${one.key}: ${text}`}
              onClick={(event) => {
                if (event.detail > 0) event.currentTarget.blur();
                onLook(isHere ? null : one.row);
              }}
            >
              <Thumbnail item={known[one.row] ?? { key: one.key }} project={project} />
              <span className="figures">{one.saying.kind === "skip" ? "–" : text}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}
