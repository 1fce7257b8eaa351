export default function ProjectPage(props: { projectId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
