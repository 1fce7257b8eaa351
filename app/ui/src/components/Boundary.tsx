/** Where drawing a page fails, the rest of the tab stays, and says so. */
import { Component, type ReactNode } from "react";
import { Failure } from "./Notice";

export class Boundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} onRetry={() => location.reload()} />;
  }
}
