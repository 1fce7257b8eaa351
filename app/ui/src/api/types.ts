/** Short names for what the API answers with. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Job = Schemas["JobOut"];
export type Project = Schemas["ProjectOut"];
export type Pool = Schemas["PoolOut"];
export type Ensemble = Schemas["EnsembleOut"];
export type Ranking = Schemas["RankingOut"];
export type Round = Schemas["RoundOut"];
export type Session = Schemas["SessionOut"];
export type SessionItem = Schemas["SessionItem"];
export type SessionForm = Schemas["FormOut"];
export type DesignVariable = Schemas["DesignVariable"];
export type OutcomeField = Schemas["OutcomeField"];
export type ObservationIn = Schemas["ObservationIn"];
export type Observation = Schemas["ObservationOut"];
export type Trial = Schemas["TrialOut"];
export type Posterior = Schemas["PosteriorOut"];
export type Marginals = Schemas["MarginalOut"];
export type Estimate = Schemas["EigOut"]["items"][number];
export type Stop = Schemas["StopOut"];
export type ProposalIn = Schemas["ProposalIn"];
export type Proposal = Schemas["ProposalOut"];
export type Experiment = Schemas["ExperimentOut"];
export type Model = Schemas["ModelOut"];
export type CatalogueItem = Schemas["CatalogueItem"];
export type Preview = Schemas["PreviewOut"];
export type Simulation = Schemas["SimulationOut"];
export type Me = Schemas["MeOut"];
export type Scope = Me["scopes"][number];
export type Key = Schemas["KeyOut"];
export type NewKey = Schemas["NewKeyOut"];
export type LearningCurve = Schemas["LearningCurve"];
export type NextItem = Schemas["NextItem"];
export type Next = Schemas["NextOut"];
export type ProjectIn = Schemas["ProjectIn"];
/** Until the schema has it. */
export interface FileInfo {
  format: "csv" | "ndjson" | "parquet" | "arrow" | "npy";
  content_type: string;
  n_rows: number | null;
  columns: {
    name: string;
    kind: "number" | "text" | "boolean" | "list" | "mixed";
    n_distinct: number;
    n_missing: number;
    examples: unknown[];
    width: number | null;
  }[];
  suggested: {
    key: string | null;
    label: string | null;
    payload: string | null;
    features: string[];
    shape: number[];
    task: { kind: "classification"; classes: string[] } | { kind: "regression"; outputs?: number } | null;
  };
  preview: Record<string, unknown>[];
  notes: string[];
}
export type Metrics = Schemas["Metrics"];
export type CurvePoint = Schemas["CurvePoint"];
export type Advice = Schemas["AdviceOut"];
export type Schedule = Schemas["ScheduleOut"];
export type Backtest = Schemas["BacktestOut"];
export type PoolItem = Schemas["ItemOut"];
export type RankedItem = Schemas["RankedItem"];
export type Evaluation = Schemas["EvaluationOut"];
export type LabelSummary = Schemas["SummaryOut"];
export type PoolMapData = Schemas["MapOut"];
export type RankingScores = Schemas["ScoresOut"];
export type RankingSample = Schemas["SampleOut"];
