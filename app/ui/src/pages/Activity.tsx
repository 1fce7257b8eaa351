/** What the service does and did: jobs of all projects, newest first, as they happen. */
import { useState } from "react";
import { useSearchParams } from "wouter";
import { Button } from "../components/Button";
import { SelectField } from "../components/Field";
import { Loaded } from "../components/Loaded";
import { Failure } from "../components/Notice";
import { allItems, api } from "../api/client";
import { useResource } from "../hooks/useResource";
import { jobTitle } from "../jobs";
import { JobRow } from "./Activity/JobRow";
import { useAllJobs, type Wanted } from "./Activity/useAllJobs";
import "./Activity/Activity.css";

const STATUSES = ["queued", "running", "succeeded", "failed", "cancelled"] as const;
const KINDS = ["train_ensemble", "rank_pool", "ingest_pool", "predict", "backtest", "simulate", "propose"];

export default function Activity() {
  const [search, setSearch] = useSearchParams();
  const wanted: Wanted = {
    status: STATUSES.find((status) => status === search.get("status")),
    kind: search.get("kind") ?? undefined,
    project_id: search.get("project") ?? undefined,
  };
  const projects = useResource("projects", (signal) =>
    allItems(
      (cursor) => api.get("/v1/projects", { query: { cursor, limit: 100, order: "desc" }, signal }),
      500,
    ),
  );
  const names = new Map((projects.data ?? []).map(({ id, name }) => [id, name]));
  const { jobs, next, showMore } = useAllJobs(wanted);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();

  function filter(name: string, value: string): void {
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        if (value === "") after.delete(name);
        else after.set(name, value);
        return after;
      },
      { replace: true },
    );
  }

  async function more(): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      await showMore();
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  const isFiltered = Object.values(wanted).some((value) => value !== undefined);
  return (
    <div className="activity stack">
      <h1>Activity</h1>
      <div className="filters">
        <SelectField
          label="Status"
          value={wanted.status ?? ""}
          onChange={(event) => filter("status", event.target.value)}
        >
          <option value="">all</option>
          {STATUSES.map((status) => (
            <option key={status}>{status}</option>
          ))}
        </SelectField>
        <SelectField
          label="Kind"
          value={wanted.kind ?? ""}
          onChange={(event) => filter("kind", event.target.value)}
        >
          <option value="">all</option>
          {KINDS.map((kind) => (
            <option key={kind} value={kind}>
              {jobTitle(kind)}
            </option>
          ))}
        </SelectField>
        <SelectField
          label="Project"
          value={wanted.project_id ?? ""}
          onChange={(event) => filter("project", event.target.value)}
        >
          <option value="">all</option>
          {(projects.data ?? []).map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </SelectField>
      </div>
      <Loaded of={jobs} lines={5}>
        {(all) =>
          all.length === 0 ? (
            <p className="quiet">
              {isFiltered
                ? "No job is like that. Choose “all” to see the others."
                : "Nothing has been done yet. Trainings, rankings and files that are read appear here."}
            </p>
          ) : (
            <ul className="jobs">
              {all.map((job) => (
                <JobRow key={job.id} job={job} projectName={names.get(job.project_id ?? "")} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {error !== undefined && <Failure error={error} />}
      {next !== null && (
        <div>
          <Button isBusy={isBusy} onClick={() => void more()}>
            Show older
          </Button>
        </div>
      )}
    </div>
  );
}
