import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'

const EXAMPLES = `
Examples:
  opledger openapi - > openapi.json
  opledger openapi openapi/openapi.json --check
`

/** `opledger openapi`. */
export const addOpenApiCommand = (program: Command): void => {
  program
    .command('openapi')
    .description('write the OpenAPI document')
    .argument('[file]', 'where to; "-" prints it', 'openapi/openapi.json')
    .option('--check', 'write nothing; fail when the file differs')
    .addHelpText('after', EXAMPLES)
    .action(async (file: string, { check }: { check?: boolean }) => {
      const { generateOpenApi } = await import('../http/openapi.ts')
      const document = await generateOpenApi()
      if (file === '-') {
        process.stdout.write(document)
      } else if (!check) {
        mkdirSync(path.dirname(file), { recursive: true })
        writeFileSync(file, document)
      } else if (readFileSync(file, { encoding: 'utf8' }) !== document) {
        process.stderr.write(`opledger: ${file} is not what the code says: run \`npm run openapi\` and commit it\n`)
        process.exitCode = 1
      }
    })
}
