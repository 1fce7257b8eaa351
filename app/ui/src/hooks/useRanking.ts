/** A ranking with why each row was chosen; its histogram and sample, once it has been made. */
import { api } from "../api/client";
import type { Ranking, RankingSample, RankingScores } from "../api/types";
import { useReloadOn } from "./useReloadOn";
import { useResource, type Resource } from "./useResource";

export function useRanking(rankingId: string): Resource<Ranking> {
  const ranking = useResource(`ranking ${rankingId}`, async (signal) => {
    const answer = await api.get("/v1/rankings/{ranking_id}", {
      path: { ranking_id: rankingId },
      query: { explain: true },
      signal,
    });
    return answer as Ranking;
  });
  const jobId = ranking.data?.job_id;
  useReloadOn(
    ranking.reload,
    (news) => news.event === "job" && news.data.id === jobId && news.data.finished_at !== null,
  );
  return ranking;
}

export function useScores(rankingId: string | null): Resource<RankingScores> {
  return useResource(rankingId === null ? null : `scores ${rankingId}`, (signal) =>
    api.get("/v1/rankings/{ranking_id}/scores", { path: { ranking_id: rankingId ?? "" }, signal }),
  );
}

export function useSample(rankingId: string | null): Resource<RankingSample> {
  return useResource(rankingId === null ? null : `sample ${rankingId}`, (signal) =>
    api.get("/v1/rankings/{ranking_id}/sample", {
      path: { ranking_id: rankingId ?? "" },
      query: { n: 5000 },
      signal,
    }),
  );
}
