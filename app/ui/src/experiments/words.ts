/** Specs, designs and rules as sentences, for somebody who reads no JSON. */
import type { DesignVariable, Posterior } from "../api/types";
import { count, many, number } from "../formats";

type Given = Record<string, unknown>;

export function valueWords(value: unknown): string {
  if (typeof value === "number") return number(value, 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** "xi = 7, delay = 30". */
export function assignments(values: Given): string {
  return Object.entries(values)
    .map(([name, value]) => `${name} = ${valueWords(value)}`)
    .join(", ");
}

const PRIORS: Record<string, (given: Given) => string> = {
  normal: ({ loc, scale }) => `normal around ${valueWords(loc)}, sd ${valueWords(scale)}`,
  lognormal: ({ loc, scale }) =>
    `log-normal: its logarithm around ${valueWords(loc)}, sd ${valueWords(scale)}`,
  student_t: ({ loc, scale }) => `Student t around ${valueWords(loc)}, scale ${valueWords(scale)}`,
  halfnormal: ({ scale }) => `half-normal from 0, scale ${valueWords(scale)}`,
  uniform: ({ low, high }) => `anywhere from ${valueWords(low)} to ${valueWords(high)}, alike`,
  loguniform: ({ low, high }) => `from ${valueWords(low)} to ${valueWords(high)}, alike on a log scale`,
  beta: ({ a, b }) => `beta(${valueWords(a)}, ${valueWords(b)}), between 0 and 1`,
  gamma: ({ shape, rate }) => `gamma of shape ${valueWords(shape)} and rate ${valueWords(rate)}`,
  truncnormal: ({ loc, scale, low, high }) =>
    `normal around ${valueWords(loc)}, sd ${valueWords(scale)}` +
    (low === undefined ? "" : `, from ${valueWords(low)}`) +
    (high === undefined ? "" : `, up to ${valueWords(high)}`),
};

/** What is believed of one parameter beforehand. */
export function priorWords(given: unknown): string {
  if (typeof given !== "object" || given === null) return valueWords(given);
  const stated = given as Given;
  if (Array.isArray(stated.values)) return `one of ${listWords(stated.values)}`;
  const known = PRIORS[String(stated.dist)];
  return known !== undefined ? known(stated) : JSON.stringify(given);
}

export function variableWords({ kind, low, high, is_log, values }: DesignVariable): string {
  if (kind === "values")
    return values?.length === 1 ? `always ${valueWords(values[0])}` : `one of ${listWords(values ?? [])}`;
  const range = `from ${valueWords(low)} to ${valueWords(high)}`;
  return kind === "integer"
    ? `whole numbers ${range}`
    : `any number ${range}${is_log ? ", on a log scale" : ""}`;
}

function listWords(values: readonly unknown[]): string {
  if (values.length <= 8) return values.map(valueWords).join(", ");
  const [first, second] = values.map(valueWords);
  return `${first}, ${second} … ${valueWords(values.at(-1))} (${count(values.length)} values)`;
}

const FAMILIES: Record<string, string> = {
  bernoulli: "yes or no",
  binomial: "how many of a number",
  categorical: "one of several",
  ordinal: "one of several, in order",
  poisson: "a count",
  negative_binomial: "a count, over-dispersed",
  geometric: "a count",
  normal: "a number with normal noise",
  student_t: "a number with heavy-tailed noise",
  lognormal: "a positive number",
  gamma: "a positive number",
  exponential: "a waiting time",
  beta: "a share between 0 and 1",
  table: "one of a table",
};

export function familyWords(family: string): string {
  return FAMILIES[family] ?? family;
}

/** How outcomes come about, as stated: "logit = theta - xi". */
export function argumentWords(given: unknown): string {
  if (typeof given !== "object" || given === null) return "";
  return Object.entries(given)
    .filter(([name]) => name !== "family" && name !== "labels")
    .map(([name, value]) => `${name} = ${Array.isArray(value) ? `[${value.join(", ")}]` : String(value)}`)
    .join(", ");
}

const METHODS: Record<string, string> = {
  linear_gaussian: "in closed form",
  enumeration: "exactly, outcome by outcome",
  quadrature: "by quadrature",
  bounds: "between bounds",
  coarse_grid: "on a coarse grid: roughly",
};

export function methodWords(method: string): string {
  return METHODS[method] ?? method;
}

const BELIEFS: Record<string, string> = {
  grid: "on a grid",
  listed: "on the values that are listed",
  particles: "by particles",
  gaussian: "in closed form, as a normal",
};

export function beliefWords(belief: string): string {
  return BELIEFS[belief] ?? belief;
}

interface Standing {
  n: number;
  posterior: Posterior["posterior"];
}

/** Each stopping rule with how far it is, "sd of theta is 1.12, stops at 0.6"; without a standing only the rule. */
export function stopWords(rule: unknown, standing?: Standing): string[] {
  if (typeof rule !== "object" || rule === null) return [];
  return Object.entries(rule).flatMap(([kind, value]) => {
    if (kind === "any" || kind === "all") {
      const inner = (Array.isArray(value) ? value : []).map((each) => stopWords(each, standing));
      return kind === "any" || inner.length < 2
        ? inner.flat()
        : [inner.flat().join(", and "), "all of these together"];
    }
    if (kind === "sd") {
      return Object.entries(value as Given).map(([name, limit]) => {
        const sd = standing?.posterior[name]?.sd;
        return typeof sd === "number"
          ? `sd of ${name} is ${number(sd)}, stops at ${valueWords(limit)}`
          : `stops when the sd of ${name} is ${valueWords(limit)}`;
      });
    }
    if (kind === "max_trials" || kind === "max_rounds") {
      return [
        standing === undefined
          ? `at most ${many(Number(value), "trial")}`
          : `${standing.n} of at most ${many(Number(value), "trial")}`,
      ];
    }
    if (kind === "max_eig_below") return [`stops when no design promises ${valueWords(value)} nats`];
    return [kind === "budget" ? `stops at a cost of ${valueWords(value)}` : `${kind} ${valueWords(value)}`];
  });
}
