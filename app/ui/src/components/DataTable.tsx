/** A table of plain cells; numbers to the right, in figures of one width. */
import type { ReactNode } from "react";

export interface Column<Row> {
  title: string;
  cell: (row: Row) => ReactNode;
  isNumber?: boolean;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row, index: number) => string | number;
  isCaptionShown?: boolean;
  /** On a phone a card for each row: for more columns than fit beside each other. */
  isCards?: boolean;
}

export function DataTable<Row>({
  caption,
  columns,
  rows,
  keyOf,
  isCaptionShown = false,
  isCards = false,
}: Props<Row>) {
  return (
    <div className="scrolls" tabIndex={0} role="region" aria-label={caption}>
      <table className={isCards ? "cards" : undefined}>
        <caption className={isCaptionShown ? "quiet" : "hidden"}>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" className={column.isNumber === true ? "number" : undefined}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>
              {columns.map((column) => (
                <td
                  key={column.title}
                  data-title={column.title}
                  className={column.isNumber === true ? "number" : undefined}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
