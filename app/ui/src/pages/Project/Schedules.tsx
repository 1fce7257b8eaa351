/** When versions are trained without anybody's asking. */
import { useState } from "react";
import { api } from "../../api/client";
import type { Pool, Schedule } from "../../api/types";
import { Button } from "../../components/Button";
import { Loaded } from "../../components/Loaded";
import { Failure } from "../../components/Notice";
import { ago, count, date, times } from "../../formats";
import { useAction } from "../../hooks/useAction";
import { useForbidden } from "../../hooks/useMe";
import { useSchedules } from "../../hooks/useSchedules";
import { ScheduleForm } from "./ScheduleForm";

export function Schedules({ projectId, pools }: { projectId: string; pools: Pool[] | undefined }) {
  const schedules = useSchedules(projectId);
  const [isAsked, setAsked] = useState(false);
  const forbidden = useForbidden("write");
  return (
    <section aria-labelledby="schedules">
      <div className="section-head">
        <h2 id="schedules">Trains by itself</h2>
        <Button kind="link" forbidden={forbidden} onClick={() => setAsked(true)}>
          Add a schedule
        </Button>
      </div>
      <Loaded of={schedules}>
        {(known) =>
          known.length === 0 ? (
            <p className="quiet">
              Only when a round is complete, or when somebody asks. A schedule trains every so many labels, or
              at a time of day.
            </p>
          ) : (
            <ul className="list">
              {known.map((schedule) => (
                <ScheduleLine key={schedule.id} schedule={schedule} onChange={schedules.reload} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {isAsked && (
        <ScheduleForm
          projectId={projectId}
          pools={(pools ?? []).filter(({ purpose }) => purpose === "candidates")}
          onMade={() => {
            setAsked(false);
            schedules.reload();
          }}
          onClose={() => setAsked(false)}
        />
      )}
    </section>
  );
}

/** "Every 50 labels", "When a round is complete", "At 0 3 * * * (Europe/Berlin)". */
export function scheduleWords({
  cron,
  timezone,
  every_labels: every,
  then_open_round: then,
}: Schedule): string {
  const when =
    cron !== null
      ? `At ${cron} (${timezone})`
      : every !== null
        ? `Every ${count(every)} labels`
        : "When a round is complete";
  const k = then?.k;
  return typeof k === "number" ? `${when}; then a round of ${count(k)} opens` : when;
}

function ScheduleLine({ schedule, onChange }: { schedule: Schedule; onChange: () => void }) {
  const forbidden = useForbidden("write");
  const path = { schedule_id: schedule.id };
  const pause = useAction(async () => {
    await api.patch("/v1/schedules/{schedule_id}", { path, body: { paused: !schedule.paused } });
    onChange();
  });
  const remove = useAction(async () => {
    await api.delete("/v1/schedules/{schedule_id}", { path });
    onChange();
  });
  const isBusy = pause.isBusy || remove.isBusy;
  const {
    n_fired: n,
    last_fired_at: last,
    next_fire_at: next,
    every_labels: every,
    labels_pending: pending,
  } = schedule;
  return (
    <li>
      <div className="between">
        <p>
          {scheduleWords(schedule)}
          {schedule.paused && <span className="warn"> · paused</span>}
        </p>
        <div className="row">
          <Button kind="link" forbidden={forbidden} isBusy={isBusy} onClick={() => void pause.run()}>
            {schedule.paused ? "Resume" : "Pause"}
          </Button>
          <Button kind="link" forbidden={forbidden} isBusy={isBusy} onClick={() => void remove.run()}>
            Delete
          </Button>
        </div>
      </div>
      <p className="quiet small">
        {n === 0 || last === null ? "Has not trained yet" : `Trained ${times(n)}, last ${ago(last)}`}
        {next !== null && !schedule.paused && ` · next ${date(next)}`}
        {every !== null && ` · ${count(pending)} of ${count(every)} labels since`}
      </p>
      {schedule.note !== null && <p className="warn small">{schedule.note}</p>}
      {pause.error !== undefined && <Failure error={pause.error} />}
      {remove.error !== undefined && <Failure error={remove.error} />}
    </li>
  );
}
