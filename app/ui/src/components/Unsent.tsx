/** Labels of earlier visits that the service has not got: sent from wherever one is, and said. */
import { useEffect, useState } from "react";
import { newRequestKey } from "../api/client";
import { useCredentials } from "../api/credentials";
import { many } from "../formats";
import { useEvents } from "../hooks/useEvents";
import { useMe } from "../hooks/useMe";
import { annotatorName } from "../labelling/annotator";
import { browserClock } from "../labelling/clock";
import { sendLeftovers, type Waiting } from "../labelling/leftovers";
import { requests } from "../labelling/requests";
import { TAB } from "../labelling/tab";

export function Unsent() {
  const annotator = annotatorName(useMe().name);
  const { key, isRefused } = useCredentials();
  const [waiting, setWaiting] = useState<Waiting>({ nOwn: 0, others: [] });
  const [retry, setRetry] = useState<() => void>(() => () => undefined);

  useEffect(() => {
    if (isRefused) return;
    const left = sendLeftovers({
      annotator,
      requests,
      storage: localStorage,
      clock: browserClock,
      tab: `${TAB} leftovers`,
      newId: newRequestKey,
      onLook: (found) => setWaiting((before) => (isSame(before, found) ? before : found)),
    });
    setRetry(() => left.retry);
    window.addEventListener("online", left.retry);
    return () => {
      window.removeEventListener("online", left.retry);
      left.stop();
    };
  }, [annotator, key, isRefused]);

  useEvents((news) => {
    if (news.event === "ready") retry();
  });

  const own = waiting.nOwn > 0 ? [`${many(waiting.nOwn, "label")} waiting to be sent`] : [];
  const others = waiting.others.map(
    ({ annotator: name, n }) => `${many(n, "label")} of ${name} wait for ${name}`,
  );
  return (
    <span className="warn" role="status">
      {[...own, ...others].join("; ")}
    </span>
  );
}

function isSame(one: Waiting, other: Waiting): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
