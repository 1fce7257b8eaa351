/** A job with where it comes from and what it made. */
import { Link } from "wouter";
import type { Job } from "../../api/types";
import { JobLine } from "../../components/JobLine";
import { ago, many } from "../../formats";
import { causeWords, placeOf } from "./about";

export function JobRow({ job, projectName }: { job: Job; projectName: string | undefined }) {
  const place = placeOf(job);
  const isTriedAgain = job.attempts > 1 && (job.status === "succeeded" || job.status === "failed");
  const why = typeof job.error?.title === "string" ? `: ${job.error.title.toLowerCase()}` : "";
  return (
    <li>
      <JobLine job={job} cause={causeWords(job)} />
      <div className="aside">
        {job.project_id !== null && <Link href={`/p/${job.project_id}`}>{projectName ?? "its project"}</Link>}
        {place !== null && <Link href={place.href}>{place.words}</Link>}
        <time className="quiet" dateTime={job.created_at} title={new Date(job.created_at).toLocaleString()}>
          {ago(job.created_at)}
        </time>
        {isTriedAgain && (
          <span className="warn">
            {many(job.attempts, "attempt")}
            {why}
          </span>
        )}
      </div>
    </li>
  );
}
