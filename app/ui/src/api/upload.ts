/** A file sent with its progress, which `fetch` does not tell. */
import { currentKey, refuse } from "./credentials";
import { Problem, Unreachable } from "./problem";

export function upload<Answer>(
  address: string,
  file: Blob,
  contentType: string,
  onProgress: (sent: number, total: number) => void,
  signal?: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const key = currentKey();
    request.open("PUT", address);
    if (key !== null) request.setRequestHeader("Authorization", `Bearer ${key}`);
    request.setRequestHeader("Content-Type", contentType);
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    request.onerror = () =>
      reject(new Unreachable(new Error("the connection broke while the file was sent")));
    request.onabort = () => reject(new DOMException("stopped", "AbortError"));
    request.onload = () => {
      const body = (request.response ?? {}) as Record<string, unknown>;
      if (request.status >= 200 && request.status < 300) return resolve(body as Answer);
      if (request.status === 401) refuse(key);
      reject(new Problem(request.status, body));
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
