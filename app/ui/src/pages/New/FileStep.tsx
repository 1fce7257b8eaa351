/** The file with the rows: chosen or dropped, and looked at before anything is made. */
import { useState, type DragEvent } from "react";
import { sentence } from "../../api/problem";
import { Button } from "../../components/Button";
import { Notice } from "../../components/Notice";
import { bytes, count } from "../../formats";
import { withFile, type Draft } from "./draft";
import { ENDINGS, kindOf, refusalOf } from "./fileKind";
import { inspect } from "./inspect";

/** How the service begins what has to be mended in the file, or by another use of its columns. */
const WOULD_BE_REFUSED = "As it is, the file would be refused";

interface Props {
  draft: Draft;
  file: File | null;
  /** A file was looked at and can be taken. */
  onFile: (file: File, taken: (draft: Draft) => Draft) => void;
  onWithout: () => void;
  onNext: () => void;
}

export function FileStep({ draft, file, onFile, onWithout, onNext }: Props) {
  const [isOver, setOver] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [refused, setRefused] = useState<string>();
  const [note, setNote] = useState<string | null>(null);

  async function take(given: File | undefined): Promise<void> {
    if (given === undefined || isBusy) return;
    setRefused(undefined);
    setNote(null);
    const kind = kindOf(given.name);
    if (kind === undefined) return setRefused(refusalOf(given.name));
    setBusy(true);
    try {
      const looked = await inspect(given, kind);
      setNote(looked.note);
      // Somebody may have gone on meanwhile: it is the draft of then that takes the file.
      onFile(given, (now) => withFile(now, given, kind.contentType, looked.found));
    } catch (reason) {
      setRefused(`${given.name}: ${sentence(reason)}`);
    } finally {
      setBusy(false);
    }
  }

  function drop(event: DragEvent): void {
    event.preventDefault();
    setOver(false);
    void take(event.dataTransfer.files[0]);
  }

  return (
    <>
      <p>
        A table with one row an item: numbers to learn from, and, where there are any, a name, a label, and
        something to show to annotators. CSV, NDJSON, Parquet, Arrow or npy.
      </p>
      <label
        className={`file-zone ${isOver ? "over" : ""}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <span className="button plain" aria-hidden="true">
          Choose a file
        </span>
        <span className="quiet">or drop it here</span>
        <input
          type="file"
          className="hidden"
          aria-label="Choose a file"
          accept={ENDINGS.join(",")}
          onChange={(event) => {
            void take(event.target.files?.[0]);
            event.target.value = ""; // the same one again, once it has been mended
          }}
        />
      </label>
      <div role="status">
        {isBusy && <p className="quiet">Looking at it…</p>}
        {!isBusy && draft.fileName !== "" && refused === undefined && (
          <p>
            <strong>{draft.fileName}</strong>{" "}
            <span className="quiet">
              {bytes(draft.fileSize)}
              {typeof draft.found?.n_rows === "number" && ` · ${count(draft.found.n_rows)} rows`}
              {draft.found !== null && ` · ${draft.found.format}`}
            </span>
          </p>
        )}
      </div>
      {refused !== undefined && (
        <Notice kind="bad">
          <p>{refused}</p>
        </Notice>
      )}
      {draft.fileName !== "" && file === null && !draft.isWithoutFile && refused === undefined && (
        <Notice kind="warn">
          <p>
            A reload lets go of files: choose {draft.fileName} again. All else that you said is still here.
          </p>
        </Notice>
      )}
      {note !== null && (
        <Notice kind="warn">
          <p>{note}</p>
        </Notice>
      )}
      {(draft.found?.notes ?? []).length > 0 && refused === undefined && (
        <ul className="notes quiet small">
          {draft.found?.notes.map((said) => (
            <li key={said} className={said.startsWith(WOULD_BE_REFUSED) ? "warn" : undefined}>
              {said}
            </li>
          ))}
        </ul>
      )}
      <div className="row">
        {draft.fileName !== "" && !draft.isWithoutFile && (
          <Button kind="primary" isBusy={isBusy} onClick={onNext}>
            Go on
          </Button>
        )}
        <Button kind={draft.isWithoutFile ? "plain" : "link"} onClick={onWithout}>
          No file yet: send rows later
        </Button>
      </div>
    </>
  );
}
