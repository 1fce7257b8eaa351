/** Labels that the service did not take, with its words: to be corrected or dropped. */
import type { Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Notice } from "../../components/Notice";
import { Thumbnail } from "../../components/Thumbnail";
import { many } from "../../formats";
import type { Refused } from "../../labelling/queue";
import type { Work } from "../../labelling/reducer";
import { sayingText } from "../../labelling/saying";

interface Props {
  refused: readonly Refused[];
  project: Project;
  known: Readonly<Record<number, Work>>;
  onCorrect: (row: number) => void;
  onDrop: (entryId: string) => void;
}

export function RefusedList({ refused, project, known, onCorrect, onDrop }: Props) {
  if (refused.length === 0) return null;
  return (
    <Notice kind="bad">
      <div className="refused">
        <h2>{many(refused.length, "label")} refused</h2>
        <ul>
          {refused.map(({ entry, detail }) => (
            <li key={entry.id}>
              <Thumbnail item={known[entry.row] ?? entry} project={project} />
              <p>
                {entry.key}: <strong>{sayingText(entry.saying, project.display?.unit)}</strong>. {detail}
              </p>
              <Button onClick={() => onCorrect(entry.row)} aria-label={`Correct ${entry.key}`}>
                Correct
              </Button>
              <Button kind="danger" onClick={() => onDrop(entry.id)} aria-label={`Drop ${entry.key}`}>
                Drop
              </Button>
            </li>
          ))}
        </ul>
      </div>
    </Notice>
  );
}
