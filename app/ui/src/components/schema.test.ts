import { describe, expect, test } from "vitest";
import { fallbackText, fieldsOf, labelOf, readTexts, summaryOf, textOf, type JsonSchema } from "./schema";

const LAPLACE: JsonSchema = {
  description: "A Gaussian at the peak,\nas wide as `H`.\n\n    q = N(m, H)",
  properties: {
    epochs: {
      type: "integer",
      default: 100,
      minimum: 0,
      maximum: 1_000_000,
      description: "passes over the rows",
    },
    lr: { type: "number", default: 0.01, exclusiveMinimum: 0, maximum: 100 },
    patience: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], default: null },
    name: { const: "laplace", default: "laplace", type: "string" },
    structure: { enum: ["kron", "diag", "full"], type: "string", default: "kron" },
    per_layer: { type: "boolean", default: false },
    learn_prior: { anyOf: [{ type: "boolean" }, { type: "null" }], default: null },
    alpha: { anyOf: [{ type: "number" }, { const: "max", type: "string" }], default: 0.5 },
    hidden: { type: "array", items: { type: "integer" }, maxItems: 3, default: [128, 128] },
  },
};
const FIELDS = fieldsOf(LAPLACE);
const field = (name: string) => {
  const found = FIELDS.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no field ${name}`);
  return found;
};

describe("fields of a schema", () => {
  test("a method's own come first, its name is none of them", () => {
    expect(FIELDS.map((one) => one.name)).toEqual([
      "structure",
      "per_layer",
      "learn_prior",
      "alpha",
      "hidden",
      "epochs",
      "lr",
      "patience",
    ]);
  });

  test("each has its kind", () => {
    expect(Object.fromEntries(FIELDS.map((one) => [one.name, one.kind]))).toEqual({
      structure: "choice",
      per_layer: "boolean",
      learn_prior: "choice",
      alpha: "number",
      hidden: "list",
      epochs: "integer",
      lr: "number",
      patience: "integer",
    });
    expect(field("structure").choices).toEqual(["kron", "diag", "full"]);
    expect(field("learn_prior").choices).toEqual(["true", "false"]);
    expect(field("alpha").words).toEqual(["max"]);
    expect(field("patience").isOptional).toBe(true);
    expect(field("lr").isOptional).toBe(false);
  });

  test("the sentence names the bounds", () => {
    expect(field("epochs").help).toBe("Passes over the rows. From 0 to 1,000,000.");
    expect(field("lr").help).toBe("Above 0 to 100.");
    expect(field("structure").help).toBe("");
  });

  test("what the form does not know is written as JSON", () => {
    const [odd] = fieldsOf({ properties: { odd: { type: "object", default: { a: 1 } } } });
    expect(odd?.kind).toBe("json");
    expect(odd && fallbackText(odd)).toBe('{"a":1}');
  });

  test("labels and summaries are words", () => {
    expect(labelOf("batch_size")).toBe("Batch size");
    expect(summaryOf(LAPLACE)).toBe("A Gaussian at the peak, as wide as H.");
  });
});

describe("what was typed, as a request", () => {
  test("nothing typed sends nothing", () => {
    expect(readTexts(FIELDS, {})).toEqual({ body: {}, errors: {} });
  });

  test("a field that was not touched shows its default", () => {
    expect(textOf(field("hidden"), {})).toBe("128, 128");
    expect(textOf(field("patience"), {})).toBe("");
    expect(textOf(field("lr"), { lr: "0.1" })).toBe("0.1");
  });

  test("values equal to the default are left out", () => {
    const texts = {
      epochs: "100",
      lr: "1e-2",
      structure: "kron",
      per_layer: "false",
      hidden: "128 128",
      patience: "",
    };
    expect(readTexts(FIELDS, texts).body).toEqual({});
  });

  test("other values are sent as what they are", () => {
    const texts = {
      epochs: "7",
      structure: "diag",
      per_layer: "true",
      learn_prior: "false",
      alpha: "max",
      hidden: "",
      patience: "3",
    };
    expect(readTexts(FIELDS, texts)).toEqual({
      body: {
        epochs: 7,
        structure: "diag",
        per_layer: true,
        learn_prior: false,
        alpha: "max",
        hidden: [],
        patience: 3,
      },
      errors: {},
    });
  });

  test("an emptied field is back at its default", () => {
    expect(readTexts(FIELDS, { epochs: " " })).toEqual({ body: {}, errors: {} });
  });

  test("what cannot be sent is told at its field, and is not sent", () => {
    const { body, errors } = readTexts(FIELDS, {
      epochs: "1.5",
      lr: "0",
      patience: "soon",
      hidden: "1, 2, 3, 4",
      alpha: "most",
    });
    expect(body).toEqual({});
    expect(errors).toEqual({
      epochs: "Expected a whole number, got 1.5.",
      lr: "Above 0 to 100, got 0.",
      patience: "Expected a number, got “soon”.",
      hidden: "From 0 to 3 numbers, got 4.",
      alpha: "Expected a number, got “most”.",
    });
  });

  test("a field without a default is asked for", () => {
    const needed = fieldsOf({ properties: { scale: { type: "number" } }, required: ["scale"] });
    expect(readTexts(needed, {}).errors).toEqual({ scale: "This is needed." });
    expect(readTexts(needed, { scale: "2" })).toEqual({ body: { scale: 2 }, errors: {} });
  });
});
