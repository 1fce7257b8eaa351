export default function RankingPage(props: { projectId: string; rankingId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
