/** A question over the page: the browser's own dialog, which keeps the keyboard inside and closes with Esc. */
import { useEffect, useRef, type ReactNode } from "react";
import "./Dialog.css";

interface Props {
  title: string;
  /** Left out, it cannot be closed without an answer. */
  onClose?: () => void;
  children: ReactNode;
}

export function Dialog({ title, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    if (dialog !== null && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      className="dialog"
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
    >
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
