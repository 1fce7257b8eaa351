import type { ButtonHTMLAttributes } from "react";
import { Link } from "wouter";
import "./Button.css";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "primary" | "plain" | "danger" | "link";
  /** Why it cannot be used: it stays in reach of the keyboard, and says so. */
  forbidden?: string;
  isBusy?: boolean;
}

export function Button({ kind = "plain", forbidden, isBusy = false, children, ...rest }: Props) {
  const isOff = forbidden !== undefined || isBusy;
  return (
    <button
      type="button"
      {...rest}
      className={`button ${kind} ${rest.className ?? ""}`}
      aria-disabled={isOff || undefined}
      aria-busy={isBusy || undefined}
      title={forbidden ?? rest.title}
      onClick={isOff ? (event) => event.preventDefault() : rest.onClick}
    >
      {children}
      {forbidden !== undefined && <span className="hidden">. {forbidden}</span>}
    </button>
  );
}

interface LinkProps {
  href: string;
  kind?: "primary" | "plain";
  children: React.ReactNode;
}

export function ButtonLink({ href, kind = "plain", children }: LinkProps) {
  return (
    <Link href={href} className={`button ${kind}`}>
      {children}
    </Link>
  );
}
