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
export type Proposal = Schemas["ProposalOut"];
export type Experiment = Schemas["ExperimentOut"];
export type Me = Schemas["MeOut"];
export type Scope = Me["scopes"][number];
export type Key = Schemas["KeyOut"];
export type NewKey = Schemas["NewKeyOut"];
export type LearningCurve = Schemas["LearningCurve"];
