/** The directions of DESIGN: who may import whom. A violation fails `npm run check`. */
const only = (name, from, allowed) => ({
  name,
  severity: 'error',
  from: { path: from },
  to: { path: '^src/', pathNot: [from, ...allowed] },
})

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'no-orphans',
      severity: 'error',
      from: { orphan: true, path: '^src/', pathNot: '^src/(api|worker|start|cli)\\.ts$' },
      to: {},
    },
    only('domain-imports-nothing-of-ours', '^src/domain/', []),
    only('storage', '^src/storage/', ['^src/domain/']),
    only('services', '^src/services/', [
      '^src/storage/',
      '^src/domain/',
      '^src/objects/object-store\\.ts$',
      '^src/probe\\.ts$',
    ]),
    only('objects', '^src/objects/', ['^src/domain/']),
    only('http', '^src/http/', ['^src/services/', '^src/domain/', '^src/(log|tracing)\\.ts$']),
    only('console', '^src/console/', []),
    only('operation-types', '^src/operation-types/', ['^src/domain/']),
    only('engine', '^src/engine/', [
      '^src/services/',
      '^src/storage/',
      '^src/domain/',
      '^src/operation-types/',
      '^src/objects/object-store\\.ts$',
      '^src/(log|probe|tracing)\\.ts$',
    ]),
    only('maintenance', '^src/maintenance/', [
      '^src/services/',
      '^src/storage/',
      '^src/domain/',
      '^src/operation-types/',
      '^src/objects/object-store\\.ts$',
      '^src/(log|probe)\\.ts$',
    ]),
    {
      name: 'nobody-imports-the-command-line',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(cli/|cli\\.ts$)' },
      to: { path: '^src/cli/' },
    },
    {
      // Commands are clients: of the server they know the types of its answers, and `openapi` its document.
      name: 'commands-know-types-of-http-only',
      severity: 'error',
      from: { path: '^src/cli/', pathNot: '^src/cli/openapi\\.ts$' },
      to: { path: '^src/http/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'database-drivers-in-storage-only',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/storage/' },
      to: { path: 'node_modules/(drizzle-orm|postgres)/' },
    },
    {
      name: 'object-stores-in-objects-only',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/objects/' },
      to: { path: 'node_modules/(flydrive|@aws-sdk)/' },
    },
    {
      name: 'traces-are-made-in-one-place',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/tracing\\.ts$' },
      to: { path: 'node_modules/@opentelemetry/' },
    },
    {
      name: 'fastify-in-http-only',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/http/' },
      to: { path: 'node_modules/(fastify|@fastify)/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default', 'types'] },
  },
}
