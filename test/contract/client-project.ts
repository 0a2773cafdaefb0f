/** The project of somebody else, who has our OpenAPI document and a generator, and nothing of ours. */
import { copyFileSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { createClient } from '@hey-api/openapi-ts'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))
const DOCUMENT = here('../../openapi/openapi.json')

interface Generator {
  name: string
  /** What its user writes, as text: the project it is compiled in does not exist here. */
  sample: string
  /** What it copies into the project does not hold under `exactOptionalPropertyTypes`, which is no part of `strict`. */
  isExact: boolean
  generate: (directory: string) => Promise<void>
}

export const GENERATORS: readonly Generator[] = [
  {
    name: 'openapi-typescript with openapi-fetch',
    sample: 'sample-client.ts.txt',
    isExact: true,
    async generate(directory) {
      const schema = await openapiTS(new URL(`file://${DOCUMENT}`))
      writeFileSync(path.join(directory, 'schema.ts'), astToString(schema))
    },
  },
  {
    name: '@hey-api/openapi-ts',
    sample: 'sample-sdk.ts.txt',
    isExact: false,
    async generate(directory) {
      await createClient({
        input: DOCUMENT,
        output: { path: path.join(directory, 'client'), importFileExtension: '.ts' },
        plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
        logs: { level: 'silent', file: false },
      })
    },
  },
]

export interface ClientProject {
  /** What the compiler says about the sample and all that was generated; empty when it is content. */
  diagnostics: string[]
  /** The compiled sample. */
  script: string
  remove(): void
}

export const openClientProject = async ({ sample, isExact, generate }: Generator): Promise<ClientProject> => {
  const directory = mkdtempSync(path.join(tmpdir(), 'opledger-client-'))
  await generate(directory)
  writeFileSync(path.join(directory, 'package.json'), JSON.stringify({ type: 'module' }))
  symlinkSync(here('../../node_modules'), path.join(directory, 'node_modules'))
  const file = path.join(directory, 'sample.ts')
  copyFileSync(here(sample), file)
  return {
    diagnostics: compile(file, directory, isExact),
    script: file.replace(/ts$/, 'js'),
    remove: () => rmSync(directory, { recursive: true }),
  }
}

const compile = (file: string, directory: string, isExact: boolean): string[] => {
  const program = ts.createProgram([file], {
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    lib: ['lib.es2023.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
    types: ['node'],
    typeRoots: [path.join(directory, 'node_modules/@types')],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: isExact,
    rewriteRelativeImportExtensions: true,
    skipLibCheck: true,
  })
  const { diagnostics } = program.emit()
  return [...ts.getPreEmitDiagnostics(program), ...diagnostics].map(({ messageText, file: at, start }) => {
    const line = at && start !== undefined ? at.getLineAndCharacterOfPosition(start).line + 1 : 0
    return `${at?.fileName ?? ''}:${line} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`
  })
}
