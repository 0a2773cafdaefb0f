/**
 * Kills workers at random under load, and counts what became of the work.
 *
 *   npm run test:faults -- [--rounds 20] [--seed N] [--keep]
 *
 * A round submits external and transactional operations, kills one worker or both with SIGKILL at moments spread over
 * the run, freezes one now and then for longer than its lease (so that it comes back as a late worker), and lets a
 * "person" close what is uncertain with the log of the effect server as evidence. At every poll, and at the end of every
 * round, API, SQL and effect log have to agree. See README.md.
 */
import { parseArgs } from 'node:util'
import postgres from 'postgres'
import { createRandom, EXTERNAL, TRANSACTIONAL } from './plan.ts'
import { runRound, type Verdict } from './round.ts'
import { startStack } from './stack.ts'

const SHOWN_MAX = 20
const COLUMNS = ['round', 'kills', 'freezes', 'uncertain', 'applied', 'retried', 'late', 'twice', 'lost', 'seconds']
const WIDTH = 10
const printLine = (cells: readonly string[]): void => console.log(cells.map((cell) => cell.padStart(WIDTH)).join(''))
const printVerdict = ({ figures, twice, lost, violations }: Verdict): void => {
  const { round, kills, freezes, uncertain, resolvedApplied, resolvedAbsent, lateEvidence, seconds } = figures
  const numbers = [round, kills, freezes, uncertain, resolvedApplied, resolvedAbsent, lateEvidence]
  printLine([...numbers, twice.length, lost.length].map(String).concat(seconds.toFixed(1)))
  for (const key of twice.slice(0, SHOWN_MAX)) console.log(`  TWICE: ${key}`)
  for (const key of lost.slice(0, SHOWN_MAX)) console.log(`  LOST: ${key}`)
  for (const violation of violations.slice(0, SHOWN_MAX)) console.log(`  VIOLATION: ${violation}`)
}

const main = async (): Promise<boolean> => {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '20' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      keep: { type: 'boolean', default: false },
    },
  })
  const [rounds, seed] = [Number(values.rounds), Number(values.seed)]
  if (!Number.isSafeInteger(rounds) || rounds < 1) throw new Error('--rounds: must be a whole number from 1 on')
  if (!Number.isSafeInteger(seed)) throw new Error('--seed: must be a whole number')
  const random = createRandom(seed)
  console.log(`seed ${seed}, ${rounds} rounds; a round: ${EXTERNAL.operations} × ${EXTERNAL.items} external items,`)
  console.log(`${TRANSACTIONAL.operations} × ${TRANSACTIONAL.items} transactional ones, two workers`)
  const interruption = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => interruption.abort())
  const stack = await startStack(createRandom(seed + 1))
  let isGood = false
  try {
    const sql = postgres(stack.databaseUrl, { max: 2, onnotice: () => {} })
    try {
      await sql`create table fault_rows (item_key text not null)`
      const verdicts: Verdict[] = []
      printLine(COLUMNS)
      for (let round = 1; round <= rounds; round++) {
        const verdict = await runRound(stack, sql, round, random, interruption.signal)
        verdicts.push(verdict)
        printVerdict(verdict)
      }
      isGood = printSummary(verdicts)
      return isGood
    } finally {
      await sql.end()
    }
  } finally {
    const keepDirectory = values.keep || !isGood
    await stack.stop({ keepDirectory })
    if (keepDirectory) console.error(`kept: ${stack.directory} (service.log, effects.log, the database)`)
  }
}

const printSummary = (verdicts: readonly Verdict[]): boolean => {
  const sum = (of: (verdict: Verdict) => number): number => verdicts.reduce((n, verdict) => n + of(verdict), 0)
  const kills = sum(({ figures }) => figures.kills)
  const uncertain = sum(({ figures }) => figures.uncertain)
  const late = sum(({ figures }) => figures.lateEvidence)
  const [twice, lost] = [sum((verdict) => verdict.twice.length), sum((verdict) => verdict.lost.length)]
  const violations = sum((verdict) => verdict.violations.length)
  console.log(`${kills} kills, ${uncertain} uncertain effects closed with evidence, ${late} late reports kept`)
  const counters = violations === 0 ? 'counters = ledger' : `${violations} VIOLATIONS`
  console.log(`${verdicts.length} rounds: ${twice} twice, ${lost} lost, ${counters}`)
  return twice + lost + violations === 0
}

process.exitCode = (await main()) ? 0 : 1
