/** All projects that this key sees, newest first, some at a time. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Project } from "../../api/types";
import { Button } from "../../components/Button";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { useEvents } from "../../hooks/useEvents";
import { useResource } from "../../hooks/useResource";
import { ProjectRow } from "./ProjectRow";

const PAGE = 12;

export function ProjectList() {
  const first = useResource("projects", (signal) =>
    api.get("/v1/projects", { query: { limit: PAGE, order: "desc" }, signal }),
  );
  const [more, setMore] = useState<Project[]>([]);
  const [cursor, setCursor] = useState<string | null>();
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  useEvents((news) => {
    // Of a project that is not listed yet: somebody has made it meanwhile.
    if (news.event !== "job" || first.data === undefined) return;
    const known = [...first.data.items, ...more];
    if (news.data.project_id !== null && !known.some(({ id }) => id === news.data.project_id)) {
      if (cursor === undefined && first.data.next_cursor === null) first.reload();
    }
  });

  async function showMore(from: string): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      const page = await api.get("/v1/projects", { query: { limit: PAGE, order: "desc", cursor: from } });
      setMore((before) => [...before, ...page.items]);
      setCursor(page.next_cursor);
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  return (
    <Loaded of={first}>
      {({ items, next_cursor }) => {
        const next = cursor === undefined ? next_cursor : cursor;
        if (items.length === 0) {
          return (
            <p className="quiet">
              None yet. A project is a question asked of your data: which class a row is, or which number. Try
              it on digits first, or bring a CSV, Parquet, Arrow, NDJSON or npy file.
            </p>
          );
        }
        return (
          <>
            <ul>
              {[...items, ...more].map((project) => (
                <ProjectRow key={project.id} project={project} />
              ))}
            </ul>
            {error !== undefined && <Failure error={error} />}
            {next !== null && (
              <div>
                <Button isBusy={isBusy} onClick={() => void showMore(next)}>
                  Show more
                </Button>
              </div>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
