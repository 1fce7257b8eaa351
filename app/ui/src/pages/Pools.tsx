export default function Pools(props: { projectId: string; poolId?: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
