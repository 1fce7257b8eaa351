/** What stands above every page: the name, where one can go, and whether the service is heard. */
import { useRef, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useArrival } from "../hooks/useArrival";
import { useIsLive } from "../hooks/useEvents";
import { Mark } from "./Mark";
import { Unsent } from "./Unsent";
import "./Layout.css";

const PLACES = [
  { href: "/", title: "Projects", starts: ["/p/", "/new"] },
  { href: "/experiments", title: "Experiments", starts: ["/e/", "/s/"] },
  { href: "/activity", title: "Activity", starts: [] },
  { href: "/settings", title: "Settings", starts: [] },
];

export function Layout({ children }: { children: ReactNode }) {
  const [location] = useLocation();
  const isLive = useIsLive();
  const main = useRef<HTMLElement>(null);
  useArrival(location, main);
  return (
    <div className="page">
      <a className="skip" href="#content">
        To the content
      </a>
      <header className="header">
        <Link href="/" className="brand">
          <Mark />
          Bensemble
        </Link>
        <nav aria-label="Main">
          {PLACES.map(({ href, title, starts }) => {
            const isHere = location === href || starts.some((start) => location.startsWith(start));
            return (
              <Link key={href} href={href} aria-current={isHere ? "page" : undefined}>
                {title}
              </Link>
            );
          })}
        </nav>
        <Unsent />
        <span className="quiet live" role="status">
          {isLive ? "" : "not connected: figures may be old"}
        </span>
      </header>
      <main id="content" tabIndex={-1} ref={main}>
        {children}
      </main>
    </div>
  );
}
