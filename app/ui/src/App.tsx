/** Who may see what: a participant by a token, everybody else by a key; and which page an address shows. */
import { lazy, Suspense } from "react";
import { Route, Switch } from "wouter";
import { api } from "./api/client";
import { useCredentials } from "./api/credentials";
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
  // Without a key too: a service that asks for none answers.
  const me = useResource(key ?? "no key", (signal) => api.get("/v1/me", { signal }));
  if (me.data === undefined && (key === null || isRefused) && !me.isLoading) return <Welcome />;
  return (
    <Loaded of={me}>
      {(known) => (
        <MeProvider me={known}>
          <EventsProvider credential={key ?? ""}>
            <Layout>
              <Boundary>
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
      )}
    </Loaded>
  );
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
