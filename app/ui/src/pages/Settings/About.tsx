import { send } from "../../api/client";
import { Loaded } from "../../components/Loaded";
import { useMe } from "../../hooks/useMe";
import { useResource } from "../../hooks/useResource";
import { date } from "../../formats";

export function About() {
  const me = useMe();
  const version = useResource("version", async (signal) => {
    const described = (await (await send("/openapi.json", { signal })).json()) as {
      info: { version: string };
    };
    return described.info.version;
  });
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
        <dd className="figures">
          <Loaded of={version} lines={1}>
            {(known) => known}
          </Loaded>
        </dd>
      </dl>
      <p>
        This page uses only the public API: what it can do, a script can do. <a href="/docs">The API</a>, or
        its <a href="/openapi.json">OpenAPI document</a>.
      </p>
    </>
  );
}
