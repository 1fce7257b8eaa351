import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import typescript from "typescript-eslint";

export default typescript.config(
  { ignores: ["dist", "node_modules", "src/api/schema.d.ts"] },
  js.configs.recommended,
  typescript.configs.strict,
  hooks.configs.flat["recommended-latest"],
  {
    rules: {
      // What TypeScript finds by itself.
      "no-undef": "off",
      // Setting state in an effect is how a resource is read anew when its address changes.
      "react-hooks/set-state-in-effect": "off",
      eqeqeq: "error",
    },
  },
);
