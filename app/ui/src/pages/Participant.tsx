/** What a participant sees: one question after another, and nothing else of the service. */
import { useEffect, useState } from "react";
import { Problem } from "../api/problem";
import { Boundary } from "../components/Boundary";
import { Loaded } from "../components/Loaded";
import { takeToken } from "../experiments/token";
import { useSession } from "../hooks/useSession";
import { Sorry } from "./Participant/Sorry";
import { Questions } from "./Participant/Questions";
import "./Participant.css";

export default function Participant({ sessionId }: { sessionId: string }) {
  const [token, setToken] = useState(() => takeToken(sessionId));
  useEffect(() => {
    // A newer link opened in this tab changes the fragment alone.
    const look = () => setToken(takeToken(sessionId));
    window.addEventListener("hashchange", look);
    return () => window.removeEventListener("hashchange", look);
  }, [sessionId]);
  useEffect(() => {
    document.title = "Experiment";
  }, []);
  return (
    <main className="participant">
      <Boundary at={sessionId}>
        {token === null ? (
          <Sorry>
            This link is not complete. Please open the whole link that you were given, or ask for a new one.
          </Sorry>
        ) : (
          <WithToken key={token} sessionId={sessionId} token={token} />
        )}
      </Boundary>
    </main>
  );
}

function WithToken({ sessionId, token }: { sessionId: string; token: string }) {
  const session = useSession(sessionId, { token });
  if (
    session.data === undefined &&
    session.error instanceof Problem &&
    [401, 403, 404].includes(session.error.status)
  ) {
    return <Sorry>This link no longer works. Please ask whoever gave it to you for a new one.</Sorry>;
  }
  return (
    <Loaded of={session}>
      {(found) => <Questions session={found} token={token} onChange={session.reload} />}
    </Loaded>
  );
}
