import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Command } from 'commander'
import { addKeyCommands } from './cli-keys.ts'
import { addRestoredCommand } from './cli-restored.ts'
import { loadConfigFromProcess } from './config.ts'
import { runEntry } from './shutdown.ts'
import { migrate } from './storage/migrate.ts'

/** The command line: a thin shell. Each command loads what it needs, so that `--help` is quick. */
const program = new Command('opledger')
  .description('Long-running operations with a result ledger.')
  .showHelpAfterError('(opledger --help lists the commands)')

// The entry files run when they are loaded.
program
  .command('start')
  .description('everything on this machine: PostgreSQL (unless DATABASE_URL is set), migrations, api and workers')
  .action(async () => void (await import('./start.ts')))
program
  .command('api')
  .description('the HTTP api (needs DATABASE_URL)')
  .action(async () => void (await import('./api.ts')))
program
  .command('worker')
  .description('one worker (needs DATABASE_URL)')
  .action(async () => void (await import('./worker.ts')))

program
  .command('migrate')
  .description('bring the schema in DATABASE_URL up to this version')
  .action(async () => {
    const { applied } = await migrate({ url: loadConfigFromProcess('migrate').databaseUrl })
    process.stdout.write(applied === 0 ? 'The schema is up to date.\n' : `Migrations applied: ${applied}.\n`)
  })

program
  .command('openapi')
  .description('write the OpenAPI document')
  .argument('[file]', 'where to; "-" prints it', 'openapi/openapi.json')
  .option('--check', 'write nothing; fail when the file differs')
  .action(async (file: string, { check }: { check?: boolean }) => {
    const { generateOpenApi } = await import('./http/openapi.ts')
    const document = await generateOpenApi()
    if (file === '-') {
      process.stdout.write(document)
    } else if (!check) {
      mkdirSync(path.dirname(file), { recursive: true })
      writeFileSync(file, document)
    } else if (readFileSync(file, { encoding: 'utf8' }) !== document) {
      program.error(`${file} is not what the code says: run \`npm run openapi\` and commit it`)
    }
  })

addKeyCommands(program)
addRestoredCommand(program)

// A reader that has seen enough, like `head`, is no error.
process.stdout.on('error', () => process.exit(0))

await runEntry(async () => {
  await program.parseAsync()
})
