/** Five curves that meet. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 28 18" width="28" height="18" aria-hidden="true" fill="none">
      <path
        stroke="currentColor"
        strokeWidth="1.3"
        d="M1 2c10 0 15 7 26 7M1 5.500c10 0 15 3.500 26 3.500M1 9h26M1 12.500c10 0 15-3.500 26-3.500M1 16c10 0 15-7 26-7"
      />
    </svg>
  );
}
