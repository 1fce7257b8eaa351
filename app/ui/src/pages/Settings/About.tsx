import { date } from "../../formats";
import { useMe } from "../../hooks/useMe";

export function About() {
  const me = useMe();
  const sees = me.project_ids === null ? "all projects" : `${me.project_ids.length} of the projects`;
  const ends = me.expires_at === null ? "" : `, until ${date(me.expires_at)}`;
  return (
    <>
      <dl>
        <dt className="quiet">Signed in as</dt>
        <dd>
          {me.name} ({me.scopes.join(", ")}; {sees}
          {ends})
        </dd>
        <dt className="quiet">Version</dt>
        <dd className="figures">{me.version}</dd>
      </dl>
      <p>
        This page uses only the public API: what it can do, a script can do. <a href="/docs">The API</a>, or
        its <a href="/openapi.json">OpenAPI document</a>.
      </p>
    </>
  );
}
