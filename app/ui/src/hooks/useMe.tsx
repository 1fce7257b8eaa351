/** Who this tab is, and what its key may do: buttons that it may not use say why. */
import { createContext, useContext, type ReactNode } from "react";
import type { Me, Scope } from "../api/types";

export type { Scope };
const SCOPES: Scope[] = ["read", "label", "write", "admin"];

const MeContext = createContext<Me | null>(null);

export function MeProvider({ me, children }: { me: Me; children: ReactNode }) {
  return <MeContext value={me}>{children}</MeContext>;
}

export function useMe(): Me {
  const me = useContext(MeContext);
  if (me === null) throw new Error("useMe is for what is shown to somebody who has signed in");
  return me;
}

/** Why this key may not do what needs `scope`; undefined where it may. */
export function useForbidden(scope: Scope): string | undefined {
  const { scopes, name } = useMe();
  const may = scopes.some((held) => SCOPES.indexOf(held) >= SCOPES.indexOf(scope));
  return may ? undefined : `The key “${name}” may not: it needs the scope ${scope}.`;
}
