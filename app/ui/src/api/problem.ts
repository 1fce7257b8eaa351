/** What the service answers where it refuses: RFC 9457, as `app/web/problems.py` writes it. */
export interface FieldError {
  pointer: string;
  detail: string;
}

export class Problem extends Error {
  readonly status: number;
  readonly detail: string;
  readonly errors: FieldError[];
  /** Seconds after which the service asks to be asked again; null where it does not say. */
  readonly retryAfter: number | null;
  readonly body: Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>, retryAfter: number | null = null) {
    const detail = typeof body.detail === "string" ? body.detail : `The service answered ${status}.`;
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.detail = detail;
    this.body = body;
    this.retryAfter = retryAfter;
    this.errors = Array.isArray(body.errors) ? (body.errors as FieldError[]) : [];
  }

  /** The sentence about one field, by its JSON pointer. */
  at(pointer: string): string | undefined {
    return this.errors.find((error) => error.pointer === pointer)?.detail;
  }
}

/** The request did not arrive, or no answer came: nothing is known of what the service did. */
export class Unreachable extends Error {
  constructor(cause: unknown) {
    super("The service does not answer. Is it running?", { cause });
    this.name = "Unreachable";
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  const body: unknown = await response.json().catch(() => ({}));
  const after = Number(response.headers.get("Retry-After"));
  const known = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  return new Problem(response.status, known, Number.isFinite(after) && after > 0 ? after : null);
}

export function sentence(error: unknown): string {
  if (error instanceof Problem) return error.detail;
  return error instanceof Error ? error.message : String(error);
}
