/** Requests to the API, typed by its own OpenAPI document: `api.get("/v1/projects/{project_id}", { path: { … } })`. */
import { currentKey, refuse } from "./credentials";
import { Unreachable, problemOf } from "./problem";
import type { paths } from "./schema";

type Method = "get" | "post" | "patch" | "put" | "delete";
type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M & keyof paths[P]]>;
type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];

type Json<Content> = Content extends { content: { "application/json": infer Body } } ? Body : undefined;
type Good<Responses> = {
  [Status in keyof Responses & (200 | 201 | 202 | 204)]: Json<Responses[Status]>;
}[keyof Responses & (200 | 201 | 202 | 204)];
type Part<T, Name extends string> = T extends { parameters: { [K in Name]: infer Value } }
  ? Value
  : undefined;
type BodyOf<T> = T extends { requestBody: { content: { "application/json": infer Body } } }
  ? Body
  : T extends { requestBody?: { content: { "application/json": infer Body } } }
    ? Body | undefined
    : undefined;

export type Answer<P extends PathsWith<M>, M extends Method> =
  Operation<P, M> extends { responses: infer Responses } ? Good<Responses> : never;

export interface Asked<P extends PathsWith<M>, M extends Method> {
  path?: Part<Operation<P, M>, "path">;
  query?: Operation<P, M> extends { parameters: { query?: infer Query } } ? Query : undefined;
  body?: BodyOf<Operation<P, M>>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  keepalive?: boolean;
  /** In place of the tab's key: a participant's token. */
  token?: string;
}

export function addressOf(path: string, values: object = {}, query: object = {}): string {
  const known = values as Record<string, string>;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(known[name])));
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? filled : `${filled}?${text}`;
}

/** The answer to any request, or a Problem or Unreachable is thrown; a refused key opens the dialog that asks for another. */
export async function send(address: string, init: RequestInit & { token?: string } = {}): Promise<Response> {
  const { token, ...request } = init;
  const key = token ?? currentKey();
  const headers = new Headers(request.headers);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  let response: Response;
  try {
    response = await fetch(address, { ...request, headers, cache: "no-store" });
  } catch (reason) {
    if (request.signal?.aborted) throw reason;
    throw new Unreachable(reason);
  }
  if (response.ok) return response;
  if (response.status === 401 && token === undefined) refuse(key);
  throw await problemOf(response);
}

/** As `Asked`, once its types have done their work. */
interface Loose {
  path?: object;
  query?: object;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  keepalive?: boolean;
  token?: string;
}

async function call(
  method: Method,
  path: string,
  { path: values, query, body, ...rest }: Loose,
): Promise<unknown> {
  const type: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await send(addressOf(path, values, query), {
    ...rest,
    method: method.toUpperCase(),
    headers: { ...type, ...rest.headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.status === 204 ? undefined : response.json();
}

function caller<M extends Method>(method: M) {
  return <P extends PathsWith<M>>(path: P, asked: Asked<P, M> = {}): Promise<Answer<P, M>> =>
    call(method, path as string, asked as Loose) as Promise<Answer<P, M>>;
}

export const api = {
  get: caller("get"),
  post: caller("post"),
  patch: caller("patch"),
  delete: caller("delete"),
};

/** Names a request, so that sent again it does nothing twice. `crypto.randomUUID` is missing on http://lab-host. */
export function newRequestKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

/** All items of a list, page after page, at most `most` of them. */
export async function allItems<T>(
  load: (cursor: string | undefined) => Promise<{ items: T[]; next_cursor: string | null }>,
  most = 1000,
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await load(cursor);
    found.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && found.length < most);
  return found;
}
