import { ButtonLink } from "../components/Button";

export default function Missing() {
  return (
    <div className="stack">
      <h1>There is nothing at this address</h1>
      <p>It may have been deleted, or the link was cut short.</p>
      <div>
        <ButtonLink href="/">To the projects</ButtonLink>
      </div>
    </div>
  );
}
