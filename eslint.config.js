import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["build/**", "node_modules/**", "assembly/**/__tests__/as-pect.d.ts", "**/*.js"] },
  {
    files: ["envoy/**/*.ts", "sidecar/**/*.ts", "tests/**/*.ts"],
    extends: [...tseslint.configs.strict, ...tseslint.configs.stylistic],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/no-floating-promises": "error",
      "@typescript-eslint/no-misused-promises": "error",
      "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/no-non-null-assertion": "error",
      eqeqeq: "error",
    },
  },
  {
    // AssemblyScript is parsed as TypeScript for the one rule that its compiler does not give: a template literal's parts are not rooted for the
    // garbage collector (AssemblyScript #2178).
    files: ["assembly/**/*.ts"],
    languageOptions: { parser: tseslint.parser, parserOptions: { allowInvalidAST: true } },
    rules: { "no-restricted-syntax": ["error", { selector: "TemplateLiteral", message: "no template literals in assembly/ (AssemblyScript #2178)" }] },
  },
);
