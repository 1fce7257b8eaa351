/** Models that people use, ready to be changed. */
import { allItems, api } from "../api/client";
import type { CatalogueItem } from "../api/types";
import { useResource, type Resource } from "./useResource";

export function useCatalogue(): Resource<CatalogueItem[]> {
  return useResource("/v1/catalog", (signal) =>
    allItems((cursor) => api.get("/v1/catalog", { query: { cursor, limit: 200 }, signal })),
  );
}
