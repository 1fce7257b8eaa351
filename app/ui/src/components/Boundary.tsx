/** Where drawing a page fails, the rest of the tab stays, and says so. */
import { Component, type ReactNode } from "react";
import { Failure } from "./Notice";

interface Props {
  /** The address: another one is tried afresh. */
  at: string;
  children: ReactNode;
}

export class Boundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override componentDidUpdate(before: Props) {
    if (before.at !== this.props.at && this.state.error !== null) this.setState({ error: null });
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} onRetry={() => location.reload()} />;
  }
}
