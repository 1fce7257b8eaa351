/** A JSON schema of a method's options (`GET /v1/methods`) as the fields of a form, and what was typed as a request. */

export interface JsonSchema {
  type?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  anyOf?: JsonSchema[];
  items?: JsonSchema;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minItems?: number;
  maxItems?: number;
}

export interface SchemaField {
  name: string;
  label: string;
  /** The sentence about it, with the bounds. */
  help: string;
  kind: "integer" | "number" | "boolean" | "choice" | "list" | "text" | "json";
  /** Empty means null. */
  isOptional: boolean;
  isRequired: boolean;
  /** What is taken where nothing is typed; undefined where the schema names nothing. */
  fallback: unknown;
  choices: string[];
  /** Words taken beside numbers, such as `max`. */
  words: string[];
  schema: JsonSchema;
}

/** What was typed, by field. A field that is missing has its default. */
export type Texts = Record<string, string>;

/** A method's own fields come after its `name`; those that it shares with others stand before, and are shown later. */
export function fieldsOf(schema: JsonSchema): SchemaField[] {
  const all = Object.entries(schema.properties ?? {});
  const at = all.findIndex(([, property]) => property.const !== undefined);
  const ordered = at < 0 ? all : [...all.slice(at + 1), ...all.slice(0, at)];
  return ordered.map(([name, property]) => fieldOf(name, property, schema.required ?? []));
}

function fieldOf(name: string, property: JsonSchema, required: string[]): SchemaField {
  const kinds = (property.anyOf ?? [property]).filter((kind) => kind.type !== "null");
  const words = kinds.filter((kind) => typeof kind.const === "string").map((kind) => String(kind.const));
  const rest = kinds.filter((kind) => kind.const === undefined);
  const isOptional = kinds.length < (property.anyOf?.length ?? 1);
  const schema = rest.length === 1 && rest[0] !== undefined ? rest[0] : {};
  return {
    name,
    label: labelOf(name),
    help: helpOf(property.description ?? "", schema),
    kind: kindOf(schema, isOptional),
    isOptional,
    isRequired: required.includes(name),
    fallback: property.default,
    choices: schema.type === "boolean" ? ["true", "false"] : (schema.enum ?? []).map(String),
    words,
    schema,
  };
}

function kindOf(schema: JsonSchema, isOptional: boolean): SchemaField["kind"] {
  if (schema.enum !== undefined) return "choice";
  if (schema.type === "boolean") return isOptional ? "choice" : "boolean";
  if (schema.type === "integer" || schema.type === "number") return schema.type;
  if (schema.type === "string") return "text";
  const inner = schema.items?.type;
  return schema.type === "array" && (inner === "integer" || inner === "number") ? "list" : "json";
}

/** `batch_size` → "Batch size". */
export function labelOf(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function helpOf(description: string, schema: JsonSchema): string {
  const bounds = boundsOf(schema);
  const said = description === "" ? "" : description.charAt(0).toUpperCase() + description.slice(1);
  const text = [said.replace(/\.$/, ""), bounds].filter((part) => part !== "").join(". ");
  return text === "" ? "" : `${text}.`;
}

function boundsOf(schema: JsonSchema): string {
  const low =
    schema.minimum !== undefined
      ? `from ${plain(schema.minimum)}`
      : schema.exclusiveMinimum !== undefined
        ? `above ${plain(schema.exclusiveMinimum)}`
        : "";
  const high =
    schema.maximum !== undefined
      ? `to ${plain(schema.maximum)}`
      : schema.exclusiveMaximum !== undefined
        ? `below ${plain(schema.exclusiveMaximum)}`
        : "";
  const text = [low, high].filter((part) => part !== "").join(" ");
  return text === "" ? "" : text.charAt(0).toUpperCase() + text.slice(1);
}

function plain(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 6 });
}

/** What stands in the field where nothing was typed. */
export function fallbackText(field: SchemaField): string {
  const { fallback, kind } = field;
  if (fallback === null || fallback === undefined) return "";
  if (kind === "list") return (fallback as unknown[]).join(", ");
  return typeof fallback === "object" ? JSON.stringify(fallback) : String(fallback);
}

export function textOf(field: SchemaField, texts: Texts): string {
  return texts[field.name] ?? fallbackText(field);
}

/** Thrown where a text is no value of its field; its message is for the person who typed it. */
class NotAValue extends Error {}

function numberOf(text: string, schema: JsonSchema): number {
  const value = Number(text.replace("−", "-"));
  if (text.trim() === "" || !Number.isFinite(value)) throw new NotAValue(`Expected a number, got “${text}”.`);
  if (schema.type === "integer" && !Number.isInteger(value))
    throw new NotAValue(`Expected a whole number, got ${text}.`);
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  const isInside =
    (minimum === undefined || value >= minimum) &&
    (maximum === undefined || value <= maximum) &&
    (exclusiveMinimum === undefined || value > exclusiveMinimum) &&
    (exclusiveMaximum === undefined || value < exclusiveMaximum);
  if (!isInside) throw new NotAValue(`${boundsOf(schema)}, got ${text}.`);
  return value;
}

function valueOf(field: SchemaField, text: string): unknown {
  if (text.trim() === "" && field.isOptional) return null;
  if (field.words.includes(text.trim())) return text.trim();
  switch (field.kind) {
    case "integer":
    case "number":
      return numberOf(text, field.schema);
    case "boolean":
      return text === "true";
    case "choice": {
      if (field.schema.type === "boolean") return text === "true";
      return field.schema.enum?.find((choice) => String(choice) === text) ?? text;
    }
    case "list": {
      const parts = text.split(/[\s,;]+/).filter((part) => part !== "");
      const { minItems = 0, maxItems = Infinity } = field.schema;
      if (parts.length < minItems || parts.length > maxItems)
        throw new NotAValue(`From ${minItems} to ${maxItems} numbers, got ${parts.length}.`);
      return parts.map((part) => numberOf(part, field.schema.items ?? {}));
    }
    case "json":
      try {
        return JSON.parse(text) as unknown;
      } catch {
        throw new NotAValue(`Expected JSON, got “${text}”.`);
      }
    case "text":
      return text;
  }
}

export interface Reading {
  /** What to send: values that equal their default are left out. */
  body: Record<string, unknown>;
  /** By field, what is wrong with what was typed. */
  errors: Record<string, string>;
}

export function readTexts(fields: SchemaField[], texts: Texts): Reading {
  const body: Record<string, unknown> = {};
  const errors: Record<string, string> = {};
  for (const field of fields) {
    const text = texts[field.name];
    const isEmpty = text === undefined || (text.trim() === "" && !field.isOptional && field.kind !== "list");
    if (isEmpty && field.isRequired) errors[field.name] = "This is needed.";
    if (isEmpty) continue;
    try {
      const value = valueOf(field, text);
      if (JSON.stringify(value) !== JSON.stringify(field.fallback ?? null)) body[field.name] = value;
    } catch (reason) {
      if (!(reason instanceof NotAValue)) throw reason;
      errors[field.name] = reason.message;
    }
  }
  return { body, errors };
}

/** The first sentence of a method's docstring: what it is, without the mathematics. */
export function summaryOf(schema: JsonSchema): string {
  const paragraph = (schema.description ?? "").split("\n\n")[0] ?? "";
  return paragraph.replaceAll("\n", " ").replaceAll("`", "").trim();
}
