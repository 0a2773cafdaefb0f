/**
 * npm run build: src/ and what it uses of node_modules, as a few files in dist/. A process of some hundred small modules spends
 * more on finding and reading them than on running them; bundled, it starts with half of the work.
 *
 * Four entries run, `operation-types/code.js` is what types in code import, and `probe.js` is what the fault suite reaches into a
 * process by. What several of them need lies in chunks that they share, so each module exists once in a process; what is
 * imported when it is needed (the other entries of the cli, the store on S3) stays in a chunk of its own.
 *
 * Types are checked by `npm run types`, not here.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const SOURCE = path.join(ROOT, 'src')
const ENTRIES = ['api', 'worker', 'start', 'cli', 'probe', 'operation-types/code']

/** Left in node_modules. */
const EXTERNAL = [
  'zod', // a schema of a type in code is made by the zod that its file imports: there must be one
  '@fastify/swagger-ui', // serves files that lie beside it
  '@aws-sdk/*', // large, and for artifacts on S3 only
  '@opentelemetry/*', // large, and loaded only where somebody takes traces
  'tsx', // resolved as a loader, never imported
]

/**
 * `import.meta.url` of a module says where it would stand in dist/ if each was a file of its own, as its paths to `drizzle/`,
 * `package.json` and the other entries are relative to that. All chunks lie directly in dist/, which makes this a constant.
 */
const keepPlaces = {
  name: 'keep-places',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, async ({ path: file }) => {
      if (!file.startsWith(SOURCE)) return null
      const text = await readFile(file, 'utf8')
      if (!text.includes('import.meta.url')) return null
      const place = path.relative(SOURCE, file).replaceAll(path.sep, '/').replace(/\.ts$/, '.js')
      const url = `new URL('./${place}', import.meta.url).href`
      return { contents: text.replaceAll('import.meta.url', url), loader: 'ts' }
    })
  },
}

/** `console*` is the work of build-console.ts, and may be served or built just now. */
const emptyDist = async () => {
  const dist = path.join(ROOT, 'dist')
  await mkdir(dist, { recursive: true })
  const ours = (await readdir(dist)).filter((name) => !name.startsWith('console'))
  await Promise.all(ours.map((name) => rm(path.join(dist, name), { recursive: true })))
}

await emptyDist()
const { metafile } = await build({
  absWorkingDir: ROOT,
  entryPoints: ENTRIES.map((entry) => `src/${entry}.ts`),
  outbase: 'src',
  outdir: 'dist',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  chunkNames: 'chunk-[hash]',
  external: EXTERNAL,
  plugins: [keepPlaces],
  sourcemap: 'linked',
  sourcesContent: false,
  // nothing is minified, so classes and functions have their names without a call that sets them on every closure
  keepNames: false,
  // CommonJS of node_modules asks for what Node brings
  banner: {
    js: "import { createRequire as _createRequire } from 'node:module'; const require = _createRequire(import.meta.url)",
  },
  metafile: true,
  logLevel: 'warning',
})

for (const [file, { inputs }] of Object.entries(metafile.outputs)) {
  const isDeep = path.dirname(file) !== 'dist'
  if (isDeep && Object.values(inputs).some(({ bytesInOutput }) => bytesInOutput > 0)) {
    throw new Error(`${file} holds code of its own, whose import.meta.url would be wrong: it should be in a chunk`)
  }
}
