/** The parts of ECharts that the page draws with; loaded when the first chart is shown. */
import { BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomInsideComponent,
  GridComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { init, use as register } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

register([
  AriaComponent,
  BarChart,
  CanvasRenderer,
  CustomChart,
  DataZoomInsideComponent,
  GridComponent,
  HeatmapChart,
  LineChart,
  MarkLineComponent,
  MarkPointComponent,
  ScatterChart,
  TooltipComponent,
  VisualMapComponent,
]);

export { init };
