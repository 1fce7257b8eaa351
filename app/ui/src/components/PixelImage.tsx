/** A picture made of numbers, drawn pixel by pixel; never inverted, whatever the theme. */
import { useLayoutEffect, useRef } from "react";
import type { Picture } from "./pixels";
import "./PixelImage.css";

/** Larger ones are photographs: enlarged they are smoothed, as any picture is. */
const COARSE = 320;

export function PixelImage({ picture, label }: { picture: Picture; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { height, width, rgba } = picture;
  useLayoutEffect(() => {
    canvas.current?.getContext("2d")?.putImageData(new ImageData(rgba, width, height), 0, 0);
  }, [rgba, width, height]);
  return (
    <canvas
      ref={canvas}
      className={Math.max(height, width) > COARSE ? "pixels" : "pixels coarse"}
      width={width}
      height={height}
      role="img"
      aria-label={label}
      style={{ aspectRatio: `${width} / ${height}` }}
    />
  );
}
