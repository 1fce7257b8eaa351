/** Why a job was begun, and where what it made is seen. */
import type { Job } from "../../api/types";

/** "from a round", "by a schedule"; undefined where somebody asked for it. */
export function causeWords({ about = {}, parent_id }: Pick<Job, "about" | "parent_id">): string | undefined {
  if (typeof parent_id === "string") return "a part of another job";
  const origin = about.origin ?? "";
  if (origin.startsWith("round:")) return "a round was completed";
  if (origin.startsWith("schedule:")) return "by a schedule";
  if (about.round_id !== undefined) return "for a round";
  return undefined;
}

export function placeOf({
  about = {},
  project_id,
}: Pick<Job, "about" | "project_id">): { href: string; words: string } | null {
  if (about.session_id !== undefined) return { href: `/s/${about.session_id}`, words: "its session" };
  if (project_id === null) return null;
  const project = `/p/${project_id}`;
  if (about.round_id !== undefined) return { href: `${project}/label/${about.round_id}`, words: "its round" };
  if (about.ranking_id !== undefined)
    return { href: `${project}/rankings/${about.ranking_id}`, words: "its ranking" };
  if (about.pool_id !== undefined) return { href: `${project}/pools/${about.pool_id}`, words: "its pool" };
  return null;
}
