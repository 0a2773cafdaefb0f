/**
 * `npm run test:mutation [-- --part domain|engine] [--mutate FILE,…] [--force]`: mutates src/domain and src/engine, and writes
 * what came of it into README.md. With `--part` or `--mutate` only that is run, and README.md stays as it is.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { EXPLAINED } from './explained.ts'
import { type MutationReport, measure, PARTS, type Part, render } from './measure.ts'

const SCORE_MIN = 85
const README = 'test/mutation/README.md'

const mutate = async (part: Part, args: string[]): Promise<void> => {
  const child = spawn('npx', ['stryker', 'run', 'test/mutation/stryker.config.mjs', ...args], {
    env: { ...process.env, MUTATED_PART: part },
    stdio: 'inherit',
  })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`stryker ended with ${code} for src/${part}`)
}

const { values } = parseArgs({
  options: { part: { type: 'string' }, mutate: { type: 'string' }, force: { type: 'boolean' } },
})
const args = [...(values.mutate ? ['--mutate', values.mutate] : []), ...(values.force ? ['--force'] : [])]
const parts = PARTS.filter((part) =>
  values.mutate ? values.mutate.startsWith(`src/${part}/`) : (values.part ?? part) === part,
)
for (const part of parts) await mutate(part, args)
if (parts.length === PARTS.length) {
  const reports = await Promise.all(
    PARTS.map(async (part) => JSON.parse(await readFile(`.stryker/${part}/report.json`, 'utf8')) as MutationReport),
  )
  const measured = measure(reports, EXPLAINED)
  const readme = await readFile(README, 'utf8')
  const rendered = render(measured, new Date().toISOString().slice(0, 10))
  await writeFile(
    README,
    readme.replace(/(?<=<!-- measured -->\n)[\s\S]*(?=<!-- \/measured -->)/, () => rendered),
  )
  // as everything here is formatted
  spawnSync('npx', ['biome', 'format', '--write', README], { stdio: 'ignore' })
  const { score } = measured.total
  process.stdout.write(`${score.toFixed(2)} % of the mutants are caught; at least ${SCORE_MIN} % have to be\n`)
  if (score < SCORE_MIN) process.exitCode = 1
}
