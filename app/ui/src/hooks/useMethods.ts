/** The models, posteriors, acquisitions and selections that there are, each with the schema of its options. */
import { api } from "../api/client";
import type { JsonSchema } from "../components/schema";
import { useResource, type Resource } from "./useResource";

export type MethodKind = "models" | "posteriors" | "acquisitions" | "selections";

export interface Method {
  schema: JsonSchema;
  /** What a ranking has to have for it: `target` is a pool given with the request. */
  needs?: string[];
  /** `categorical`: classes, `gaussian`: numbers. */
  families?: string[];
}

export type Methods = Record<MethodKind, Record<string, Method>>;

export function useMethods(): Resource<Methods> {
  return useResource("methods", async (signal) => {
    const methods = await api.get("/v1/methods", { signal });
    return methods as unknown as Methods;
  });
}

/** Those that can be taken for the task without anything else; `epig`, which needs a target set, is not among them. */
export function fittingMethods(
  methods: Record<string, Method>,
  task: { kind: "classification" | "regression" },
): Record<string, Method> {
  const family = task.kind === "classification" ? "categorical" : "gaussian";
  return Object.fromEntries(
    Object.entries(methods).filter(
      ([, { needs = [], families = [] }]) =>
        !needs.includes("target") && (families.length === 0 || families.includes(family)),
    ),
  );
}
