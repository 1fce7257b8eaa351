/** Where a file is dropped to become a pool: sent with its progress, read by a job, refused with what to do. */
import { useRef, useState } from "react";
import { api } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Job, Pool } from "../../api/types";
import { upload } from "../../api/upload";
import { Button } from "../../components/Button";
import { SelectField, TextField } from "../../components/Field";
import { JobLine } from "../../components/JobLine";
import { Failure } from "../../components/Notice";
import { Progress } from "../../components/Progress";
import { bytes, duration } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import { secondsLeft, withSample, type Sample } from "../../jobs";
import { ENDINGS, kindOf, refusalOf } from "../New/fileKind";
import "./DropZone.css";

interface Props {
  projectId: string;
  onMade: () => void;
}

type Purpose = Pool["purpose"];

const PURPOSES: Record<Purpose, string> = {
  candidates: "candidates: to be ranked and labelled",
  evaluation: "evaluation: labelled, only measured on",
  task: "another task: labelled, for methods that learn over several",
};

export function DropZone({ projectId, onMade }: Props) {
  const [purpose, setPurpose] = useState<Purpose>("candidates");
  const [columns, setColumns] = useState({ key: "", label: "", payload: "" });
  const [isOver, setOver] = useState(false);
  const [name, setName] = useState("");
  const [samples, setSamples] = useState<Sample[]>([]);
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState<unknown>(undefined);
  const stop = useRef<AbortController | null>(null);
  const picker = useRef<HTMLInputElement>(null);
  const forbidden = useForbidden("write");
  const isBusy = samples.length > 0;

  async function take(file: File | undefined): Promise<void> {
    if (file === undefined || isBusy || forbidden !== undefined) return;
    setJob(null);
    setError(undefined);
    setName(file.name);
    const kind = kindOf(file.name);
    if (kind === undefined) return setError(new Error(refusalOf(file.name)));
    const now = new AbortController();
    stop.current = now;
    setSamples([{ at: Date.now(), done: 0, total: file.size }]);
    let pool: Pool | null = null;
    try {
      const path = { project_id: projectId };
      pool = await api.post("/v1/projects/{project_id}/pools", { path, body: { name: file.name, purpose } });
      const given = Object.entries(columns).filter(([, column]) => column.trim() !== "");
      const query = new URLSearchParams(given.map(([which, column]) => [which, column.trim()])).toString();
      const address = `/v1/pools/${pool.id}/data${query === "" ? "" : `?${query}`}`;
      const made = await upload<{ job: Job }>(
        address,
        file,
        kind.contentType,
        (done, total) => setSamples((before) => withSample(before, { at: Date.now(), done, total })),
        now.signal,
      );
      setJob(made.job);
    } catch (reason) {
      // A pool without rows would only be in the way; where it cannot be removed, it is seen in the list.
      if (pool !== null)
        await api.delete("/v1/pools/{pool_id}", { path: { pool_id: pool.id } }).catch(() => undefined);
      if (!now.signal.aborted) setError(reason);
    } finally {
      setSamples([]);
      onMade();
    }
  }

  const last = samples.at(-1);
  return (
    <div
      className={`drop-zone ${isOver ? "over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void take(event.dataTransfer.files[0]);
      }}
    >
      <div className="between">
        <div>
          <h2>Add a pool</h2>
          <p className="quiet">Drop a file here: CSV, NDJSON, Parquet, Arrow or npy, one row an item.</p>
        </div>
        <Button kind="primary" forbidden={forbidden} isBusy={isBusy} onClick={() => picker.current?.click()}>
          Choose a file
        </Button>
        <input
          ref={picker}
          type="file"
          hidden
          aria-label="File of a new pool"
          accept={ENDINGS.join(",")}
          onChange={(event) => {
            void take(event.target.files?.[0]);
            event.target.value = "";
          }}
        />
      </div>
      <div className="fields">
        <SelectField
          label="Purpose"
          value={purpose}
          onChange={(event) => setPurpose(event.target.value as Purpose)}
        >
          {Object.entries(PURPOSES).map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </SelectField>
      </div>
      <details>
        <summary>Columns that are no features</summary>
        <div className="fields">
          <TextField
            label="Key"
            value={columns.key}
            placeholder="key"
            onChange={(event) => setColumns({ ...columns, key: event.target.value })}
            help="Your own name of each row."
          />
          <TextField
            label="Label"
            value={columns.label}
            placeholder="label"
            onChange={(event) => setColumns({ ...columns, label: event.target.value })}
            help="What is known already."
          />
          <TextField
            label="Payload"
            value={columns.payload}
            placeholder="payload"
            onChange={(event) => setColumns({ ...columns, payload: event.target.value })}
            help="What annotators are shown."
          />
        </div>
      </details>
      {last !== undefined && (
        <Progress done={last.done} total={last.total} label={`Sending ${name}`}>
          {bytes(last.done)} of {bytes(last.total)}
          {left(samples)}
        </Progress>
      )}
      {last !== undefined && (
        <div>
          <Button onClick={() => stop.current?.abort()}>Stop</Button>
        </div>
      )}
      {job !== null && <JobLine key={job.id} job={job} title={`Reading ${name}`} onEnd={onMade} />}
      {error !== undefined && <Refused error={error} />}
    </div>
  );
}

function left(samples: Sample[]): string {
  const seconds = secondsLeft(samples, samples.at(-1)?.at ?? 0);
  return seconds === null ? "" : ` · ${duration(seconds)} left`;
}

/** The reader's sentence, and the way on. */
function Refused({ error }: { error: unknown }) {
  const several = error instanceof Problem ? error.errors.slice(0, 5) : [];
  return (
    <>
      <Failure error={error} />
      {several.length > 0 && (
        <ul>
          {several.map(({ pointer, detail }) => (
            <li key={`${pointer} ${detail}`}>{detail}</li>
          ))}
        </ul>
      )}
      {error instanceof Problem && (
        <p className="quiet">
          Nothing was kept. Mend the file, or say above which columns are no features, and choose it again.
        </p>
      )}
    </>
  );
}
