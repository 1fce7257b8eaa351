/** Who may see what: a participant by a token, everybody else by a key; and which page an address shows. */
import { lazy, Suspense, useState } from "react";
import { Route, Switch, useLocation } from "wouter";
import { api } from "./api/client";
import { useCredentials } from "./api/credentials";
import type { Me } from "./api/types";
import { Boundary } from "./components/Boundary";
import { Dialog } from "./components/Dialog";
import { Layout } from "./components/Layout";
import { Loaded, Skeleton } from "./components/Loaded";
import { SignIn } from "./components/SignIn";
import { EventsProvider } from "./hooks/useEvents";
import { MeProvider } from "./hooks/useMe";
import { useResource } from "./hooks/useResource";
import { Welcome } from "./pages/Welcome";

const Start = lazy(() => import("./pages/Start"));
const New = lazy(() => import("./pages/New"));
const ProjectPage = lazy(() => import("./pages/Project"));
const Pools = lazy(() => import("./pages/Pools"));
const RankingPage = lazy(() => import("./pages/Ranking"));
const Label = lazy(() => import("./pages/Label"));
const Experiments = lazy(() => import("./pages/Experiments"));
const ExperimentPage = lazy(() => import("./pages/Experiment"));
const SessionPage = lazy(() => import("./pages/Session"));
const Participant = lazy(() => import("./pages/Participant"));
const Activity = lazy(() => import("./pages/Activity"));
const Settings = lazy(() => import("./pages/Settings"));
const Missing = lazy(() => import("./pages/Missing"));

export function App() {
  return (
    <Suspense fallback={<Skeleton />}>
      <Switch>
        <Route path="/run/:id">{({ id }) => <Participant sessionId={id} />}</Route>
        <Route>
          <SignedIn />
        </Route>
      </Switch>
    </Suspense>
  );
}

function SignedIn() {
  const { key, isRefused } = useCredentials();
  const [location] = useLocation();
  // Without a key too: a service that asks for none answers.
  const me = useResource(key ?? "no key", (signal) => api.get("/v1/me", { signal }));
  const known = useKept(me.data, key);
  if (known === undefined && (key === null || isRefused) && !me.isLoading) {
    return <Welcome isRefused={key !== null && isRefused} error={me.error} />;
  }
  if (known === undefined) {
    return (
      <main className="page alone">
        <Loaded of={me}>{() => null}</Loaded>
      </main>
    );
  }
  return (
    <MeProvider me={known}>
      <EventsProvider credential={key ?? ""}>
        <Layout>
          <Boundary at={location}>
            <Suspense fallback={<Skeleton />}>
              <Pages />
            </Suspense>
          </Boundary>
        </Layout>
        {isRefused && (
          <Dialog title="This key is no longer taken">
            <SignIn hint="It was revoked or has expired. Nothing on the page is lost: give another key." />
          </Dialog>
        )}
      </EventsProvider>
    </MeProvider>
  );
}

/** Who was known stays while a key takes the place of one that was refused: the page under the dialog keeps what was typed. */
function useKept(me: Me | undefined, key: string | null): Me | undefined {
  const [kept, setKept] = useState<{ me: Me; key: string | null }>();
  if (me !== undefined && kept?.me !== me) setKept({ me, key });
  if (kept !== undefined && key === null && kept.key !== null) setKept(undefined);
  return me ?? (key === null && kept?.key !== null ? undefined : kept?.me);
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={Start} />
      <Route path="/new" component={New} />
      <Route path="/p/:id">{({ id }) => <ProjectPage key={id} projectId={id} />}</Route>
      <Route path="/p/:id/pools/:pool?">{({ id, pool }) => <Pools projectId={id} poolId={pool} />}</Route>
      <Route path="/p/:id/rankings/:ranking">
        {({ id, ranking }) => <RankingPage key={ranking} projectId={id} rankingId={ranking} />}
      </Route>
      <Route path="/p/:id/label/:round">
        {({ id, round }) => <Label key={round} projectId={id} roundId={round} />}
      </Route>
      <Route path="/experiments" component={Experiments} />
      <Route path="/e/:id">{({ id }) => <ExperimentPage key={id} experimentId={id} />}</Route>
      <Route path="/s/:id">{({ id }) => <SessionPage key={id} sessionId={id} />}</Route>
      <Route path="/activity" component={Activity} />
      <Route path="/settings" component={Settings} />
      <Route component={Missing} />
    </Switch>
  );
}
