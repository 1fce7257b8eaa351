/** Makes a project step after step, remembers what is made already, and goes on from there when tried again. */
import { useRef, useState } from "react";
import { api, newRequestKey } from "../../api/client";
import { Problem, sentence } from "../../api/problem";
import type { Job, Pool, Project, Round } from "../../api/types";
import { upload } from "../../api/upload";
import { isActive, withSample, type Sample } from "../../jobs";
import type { Methods } from "../../hooks/useMethods";
import { columnQuery, projectBody, type Draft } from "./draft";
import { kindOf } from "./fileKind";
import { forgetHalf, storeHalf } from "./half";

export interface Plan {
  draft: Draft;
  file: File | null;
  evaluation: File | null;
  methods: Methods | undefined;
}

export type Stage = "project" | "rows" | "evaluation" | "training" | "round";

export interface Making {
  status: "idle" | "busy" | "failed" | "done";
  stage: Stage;
  /** Of the file that is under way. */
  samples: Sample[];
  /** The job that is waited for. */
  job: Job | null;
  project: Project | null;
  round: Round | null;
  error: unknown;
}

const IDLE: Making = {
  status: "idle",
  stage: "project",
  samples: [],
  job: null,
  project: null,
  round: null,
  error: undefined,
};

/** What is there, in case that something after it fails. */
interface Made {
  body: string;
  requestKey: string;
  project: Project | null;
  pool: Pool | null;
  isRead: boolean;
  isMeasured: boolean;
}

export function useMaking(onDone: (making: Making) => void) {
  const [making, setMaking] = useState(IDLE);
  const made = useRef<Made>({
    body: "",
    requestKey: "",
    project: null,
    pool: null,
    isRead: false,
    isMeasured: false,
  });
  const stop = useRef(new AbortController());
  const tell = (change: Partial<Making>) => setMaking((before) => ({ ...before, ...change }));

  async function run(plan: Plan): Promise<void> {
    stop.current = new AbortController();
    tell({ ...IDLE, status: "busy", project: made.current.project });
    try {
      const project = await ensureProject(plan);
      const round = plan.file === null ? null : await fill(project, plan, plan.file);
      forgetHalf();
      const done: Making = { ...IDLE, status: "done", project, round };
      setMaking(done);
      onDone(done);
    } catch (error) {
      tell({ status: "failed", error, job: null });
    }
  }

  /** The one from before, if nothing about it has changed since; else that one goes, and another is made. */
  async function ensureProject({ draft, methods }: Plan): Promise<Project> {
    tell({ stage: "project" });
    const body = projectBody(draft, methods);
    const text = JSON.stringify(body);
    if (made.current.project !== null && made.current.body === text) return made.current.project;
    if (made.current.project !== null) await discard();
    if (made.current.body !== text)
      made.current = { ...made.current, body: text, requestKey: newRequestKey() };
    const project = await api.post("/v1/projects", {
      body,
      headers: { "Idempotency-Key": made.current.requestKey },
    });
    made.current = { ...made.current, project, pool: null, isRead: false, isMeasured: false };
    storeHalf(project);
    tell({ project });
    return project;
  }

  async function fill(project: Project, plan: Plan, file: File): Promise<Round | null> {
    const { draft, evaluation } = plan;
    if (!made.current.isRead) {
      tell({ stage: "rows" });
      const pool = await readFile(project, "candidates", file, draft);
      made.current = { ...made.current, pool, isRead: true };
    }
    if (evaluation !== null && !made.current.isMeasured) {
      tell({ stage: "evaluation" });
      await readFile(project, "evaluation", evaluation, draft);
      made.current = { ...made.current, isMeasured: true };
    }
    const pool = made.current.pool;
    if (pool === null) return null;
    if (pool.n_labelled > 0) {
      tell({ stage: "training" });
      const { job } = await api.post("/v1/projects/{project_id}/ensembles", {
        path: { project_id: project.id },
        body: {},
      });
      await ended(job);
    }
    return pool.n_labelled + pool.n_skipped < pool.n_rows ? openRound(project, pool, draft) : null;
  }

  async function readFile(
    project: Project,
    purpose: "candidates" | "evaluation",
    file: File,
    draft: Draft,
  ): Promise<Pool> {
    tell({ samples: [], job: null });
    const path = { project_id: project.id };
    const pool = await api.post("/v1/projects/{project_id}/pools", {
      path,
      body: { name: file.name, purpose },
    });
    try {
      const query = columnQuery(draft).toString();
      const { job } = await upload<{ job: Job }>(
        `/v1/pools/${pool.id}/data${query === "" ? "" : `?${query}`}`,
        file,
        purpose === "candidates" ? draft.contentType : (kindOf(file.name)?.contentType ?? ""),
        (done, total) =>
          setMaking((before) => ({
            ...before,
            samples: withSample(before.samples, { at: Date.now(), done, total }),
          })),
        stop.current.signal,
      );
      await ended(job);
    } catch (reason) {
      // A pool without rows would only be in the way; where it cannot be removed, it is seen in the project.
      await api.delete("/v1/pools/{pool_id}", { path: { pool_id: pool.id } }).catch(() => undefined);
      throw reason;
    }
    return api.get("/v1/pools/{pool_id}", { path: { pool_id: pool.id } });
  }

  async function openRound(project: Project, pool: Pool, draft: Draft): Promise<Round> {
    tell({ stage: "round", job: null });
    const path = { project_id: project.id };
    const wanted = { pool_id: pool.id, k: Number(draft.k) };
    const { job, round } = await api.post("/v1/projects/{project_id}/rounds", { path, body: wanted });
    if (draft.isGoingOn) {
      const body = { on_round_complete: true, then_open_round: wanted };
      await api.post("/v1/projects/{project_id}/schedules", { path, body });
    }
    await ended(job);
    return round;
  }

  /** Asked once a second: what the stream tells may have been told before anybody listened. */
  async function ended(first: Job): Promise<Job> {
    let job = first;
    for (;;) {
      tell({ job });
      if (!isActive(job)) break;
      await new Promise((resolve) => setTimeout(resolve, 1000));
      job = await api.get("/v1/jobs/{job_id}", { path: { job_id: first.id } });
    }
    if (job.status === "succeeded") return job;
    throw new Problem(422, job.error ?? { detail: `It was ${job.status}.` });
  }

  /** Removes the project that was made halfway. */
  async function discard(): Promise<void> {
    const { project } = made.current;
    if (project !== null) await api.delete("/v1/projects/{project_id}", { path: { project_id: project.id } });
    made.current = { ...made.current, body: "", project: null, pool: null, isRead: false, isMeasured: false };
    forgetHalf();
    tell({ project: null });
  }

  return {
    making,
    run,
    discard: async () => {
      try {
        await discard();
        setMaking(IDLE);
      } catch (reason) {
        tell({ status: "failed", error: new Error(`It could not be deleted: ${sentence(reason)}`) });
      }
    },
    /** Stops sending; what is made stays, and is told. */
    cancel: () => stop.current.abort(),
    /** Back to the form. */
    mend: () => tell({ status: "idle" }),
  };
}
