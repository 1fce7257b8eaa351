/** From a file to the first round: what was said is kept in the tab, and nothing is made before the end. */
import { useEffect, useRef, useState, type ReactNode } from "react";
import { useLocation } from "wouter";
import { api } from "../api/client";
import { Problem, sentence } from "../api/problem";
import { Button, ButtonLink } from "../components/Button";
import { CopyAsCurl } from "../components/CopyAsCurl";
import { specOf } from "../components/MethodForm";
import { Notice } from "../components/Notice";
import { bytes, many } from "../formats";
import { useForbidden } from "../hooks/useMe";
import { useMethods } from "../hooks/useMethods";
import { ColumnsStep } from "./New/ColumnsStep";
import {
  classesOf,
  EMPTY,
  firstMistake,
  forgetDraft,
  labelColumn,
  nFeatures,
  projectBody,
  STEPS,
  storeDraft,
  storedDraft,
  type Draft,
  type Step,
} from "./New/draft";
import { FileStep } from "./New/FileStep";
import { forgetHalf, storedHalf } from "./New/half";
import { MakingView } from "./New/MakingView";
import { MethodStep } from "./New/MethodStep";
import { Preview } from "./New/Preview";
import { TaskStep } from "./New/TaskStep";
import { useMaking } from "./New/useMaking";
import "./New/New.css";

const TITLES: Record<Step, string> = { file: "File", columns: "Columns", task: "Task", method: "Method" };

export default function New() {
  const [, go] = useLocation();
  const forbidden = useForbidden("write");
  const methods = useMethods();
  const [draft, setDraft] = useState(storedDraft);
  const [file, setFile] = useState<File | null>(null);
  const [evaluation, setEvaluation] = useState<File | null>(null);
  const [tried, setTried] = useState<ReadonlySet<Step>>(new Set());
  const isHere = useIsHere();
  const { making, run, discard, cancel, mend } = useMaking(({ project, round }) => {
    forgetDraft();
    if (!isHere.current || project === null) return;
    go(round === null ? `/p/${project.id}` : `/p/${project.id}/label/${round.id}`);
  });
  useWarning(making.status === "busy");

  function change(next: Draft): void {
    setDraft(next);
    storeDraft(next);
  }
  const open = (step: Step) => change({ ...draft, step });

  function next(from: Step): void {
    setTried(new Set([...tried, from]));
    const wrong = firstMistake(draft, from);
    if (wrong !== undefined) return open(wrong);
    const after = STEPS[STEPS.indexOf(from) + 1];
    if (after !== undefined) open(after);
  }

  const isWrongSpec = (["posteriors", "models", "acquisitions", "selections"] as const).some(
    (kind) => specOf(methods.data?.[kind], draft[CHOICE_OF[kind]]).isWrong,
  );
  const plan = { draft, file, evaluation, methods: methods.data };

  function make(): void {
    setTried(new Set(STEPS));
    const wrong = firstMistake(draft);
    const isFileGone =
      (file === null && !draft.isWithoutFile) || (evaluation === null && draft.evaluationName !== "");
    if (wrong !== undefined) return open(wrong);
    if (file === null && !draft.isWithoutFile) return open("file");
    if (!isFileGone && !isWrongSpec) void run(plan);
  }

  // What the service refused before anything was made belongs at its field.
  const problem = making.status === "failed" && making.project === null ? making.error : undefined;
  useEffect(() => {
    const step = stepOf(problem);
    if (step === undefined) return;
    setDraft((before) => ({ ...before, step }));
    mend();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each refusal
  }, [problem]);
  const [shownProblem, setShownProblem] = useState<unknown>();
  if (problem !== undefined && shownProblem !== problem) setShownProblem(problem);
  if (making.status === "busy" && shownProblem !== undefined) setShownProblem(undefined);

  const bodies: Record<Step, ReactNode> = {
    file: (
      <FileStep
        draft={draft}
        file={file}
        onFile={(given, taken) => {
          setFile(given);
          setDraft((before) => {
            const after = taken(before);
            storeDraft(after);
            return after;
          });
        }}
        onWithout={() => {
          setFile(null);
          change({ ...draft, isWithoutFile: true, found: null, fileName: "", roles: {}, step: "columns" });
        }}
        onNext={() => next("file")}
      />
    ),
    columns: (
      <ColumnsStep
        draft={draft}
        onChange={change}
        onNext={() => next("columns")}
        isTried={tried.has("columns")}
      />
    ),
    task: (
      <TaskStep
        draft={draft}
        onChange={change}
        onNext={() => next("task")}
        isTried={tried.has("task")}
        problem={shownProblem}
      />
    ),
    method: (
      <MethodStep
        draft={draft}
        onChange={change}
        evaluation={evaluation}
        onEvaluation={setEvaluation}
        methods={methods}
        problem={shownProblem}
        isTried={tried.has("method")}
        onMake={make}
        isBusy={making.status === "busy"}
      />
    ),
  };

  if (forbidden !== undefined) {
    return (
      <div className="stack">
        <h1>A new project</h1>
        <p>{forbidden} Ask for a key that may write.</p>
      </div>
    );
  }
  const isMaking =
    making.status === "busy" || (making.status === "failed" && stepOf(making.error) === undefined);
  return (
    <div className="new-page">
      <div className="between">
        <h1>A new project</h1>
        {!isMaking && draft !== EMPTY && (
          <Button
            kind="link"
            onClick={() => {
              forgetDraft();
              setDraft(EMPTY);
              setFile(null);
              setEvaluation(null);
              setTried(new Set());
            }}
          >
            Begin anew
          </Button>
        )}
      </div>
      {!isMaking && making.project === null && <HalfMade />}
      {isMaking ? (
        <MakingView
          making={making}
          plan={plan}
          onRetry={() => void run(plan)}
          onMend={() => {
            mend();
            if (making.stage === "rows") open("file");
            if (making.stage === "evaluation") open("method");
          }}
          onDiscard={() => void discard()}
          onCancel={cancel}
        />
      ) : (
        <>
          {shownProblem !== undefined && (
            <Notice kind="bad">
              <p>{sentence(shownProblem)}</p>
            </Notice>
          )}
          <div className="new">
            {STEPS.map((step, i) => (
              <section key={step} className={draft.step === step ? "open" : undefined}>
                <h2>
                  <button
                    type="button"
                    aria-expanded={draft.step === step}
                    aria-controls={`step-${step}`}
                    onClick={() => {
                      const wrong = i === 0 ? undefined : firstMistake(draft, STEPS[i - 1]);
                      if (wrong === undefined || STEPS.indexOf(wrong) >= i) return open(step);
                      setTried(new Set([...tried, wrong]));
                      open(wrong);
                    }}
                  >
                    <span className="figures">{i + 1}</span> {TITLES[step]}
                    <span className="quiet summary">{summaryOf(draft, step)}</span>
                  </button>
                </h2>
                <div id={`step-${step}`} className="step-body stack" hidden={draft.step !== step}>
                  {draft.step === step && bodies[step]}
                </div>
              </section>
            ))}
            <div className="preview">
              <Preview draft={draft} />
              {draft.step === "method" && firstMistake(draft) === undefined && (
                <CopyAsCurl method="POST" address="/v1/projects" body={projectBody(draft, methods.data)} />
              )}
            </div>
          </div>
        </>
      )}
    </div>
  );
}

const CHOICE_OF = {
  posteriors: "posterior",
  models: "model",
  acquisitions: "acquisition",
  selections: "selection",
} as const;

/** Which step a refusal of `POST /v1/projects` belongs to; undefined where it is of none. */
function stepOf(error: unknown): Step | undefined {
  const pointer = error instanceof Problem ? error.errors[0]?.pointer : undefined;
  if (pointer === undefined) return undefined;
  if (/^\/(name|task|display)/.test(pointer)) return "task";
  if (pointer.startsWith("/input")) return "columns";
  return /^\/(posterior|model|acquisition|selection|holdout|calibrate)/.test(pointer) ? "method" : undefined;
}

function summaryOf(draft: Draft, step: Step): string {
  switch (step) {
    case "file":
      if (draft.isWithoutFile) return "none yet";
      return draft.fileName === "" ? "" : `${draft.fileName}, ${bytes(draft.fileSize)}`;
    case "columns": {
      if (nFeatures(draft) === 0) return "";
      const label = labelColumn(draft);
      return `${many(nFeatures(draft), "feature")}${label === undefined ? "" : `, label ${label}`}`;
    }
    case "task":
      if (draft.kind === "regression") return draft.unit === "" ? "a number" : `a number in ${draft.unit}`;
      return classesOf(draft).length === 0 ? "" : many(classesOf(draft).length, "class", "classes");
    case "method":
      return draft.posterior.name === "" ? "chosen for you" : draft.posterior.name;
  }
}

/** A project of an earlier attempt that has no rows: it is not left behind without a word. */
function HalfMade() {
  const [half, setHalf] = useState(storedHalf);
  const [error, setError] = useState<string>();
  if (half === null) return null;

  async function remove(id: string): Promise<void> {
    try {
      await api.delete("/v1/projects/{project_id}", { path: { project_id: id } });
      forgetHalf();
      setHalf(null);
    } catch (reason) {
      setError(sentence(reason));
    }
  }

  return (
    <Notice kind="warn">
      <p>
        “{half.name}” was made before this page was loaded anew, and may have no rows yet.{" "}
        {error !== undefined && error}
      </p>
      <div className="row">
        <ButtonLink href={`/p/${half.id}`}>Open it</ButtonLink>
        <Button kind="danger" onClick={() => void remove(half.id)}>
          Delete it
        </Button>
        <Button
          onClick={() => {
            forgetHalf();
            setHalf(null);
          }}
        >
          Keep it
        </Button>
      </div>
    </Notice>
  );
}

/** Whether this page is still shown: what it made goes on, but does not pull somebody away who has left. */
function useIsHere() {
  const isHere = useRef(true);
  useEffect(() => {
    isHere.current = true;
    return () => {
      isHere.current = false;
    };
  }, []);
  return isHere;
}

/** Closing the tab would stop what is sent. */
function useWarning(isOn: boolean): void {
  useEffect(() => {
    if (!isOn) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [isOn]);
}
