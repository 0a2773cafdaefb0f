/** What all commands that ask a running service have in common: their options, their client, and how they fail. */
import type { Command } from 'commander'
import { loadClientSettingsFromProcess } from '../config.ts'
import { type ApiClient, openApiClient } from './api-client.ts'

export interface ServiceOptions {
  url?: string
  key?: string
  as?: string
  json?: boolean
}

export interface Session {
  api: ApiClient
  /** `opledger …` with the options that reach the same service, for a command to go on with; never with the key. */
  commandLine: (rest: string) => string
}

export const CONNECTION_HELP = `
The service is that of --url, else of OPLEDGER_URL, else the one that \`opledger start\` runs here. The API key comes from
OPLEDGER_KEY or from a file, OPLEDGER_KEY_FILE; on a command line (--key) other users of the machine can see it.
`

export const addServiceOptions = (command: Command): Command =>
  command
    .option('--url <url>', 'where the service is')
    .option('--key <key>', 'API key; better OPLEDGER_KEY or OPLEDGER_KEY_FILE')
    .option('--as <name>', 'who asks, where the service runs without keys')
    .option('--json', 'print what the API answered, as JSON')

/** Long lines of help are written as they are to be read. */
export const addExamples = (command: Command, text: string): Command =>
  command.addHelpText('after', `\n${text.trim()}\n${CONNECTION_HELP}`)

const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

/** Runs `work` with a client, and closes it. */
export const withService = async (
  { url, key, as }: ServiceOptions,
  work: (session: Session) => Promise<void>,
): Promise<void> => {
  const api = openApiClient(loadClientSettingsFromProcess({ url, key }), as ?? null)
  const same = [...(url === undefined ? [] : ['--url', url]), ...(as === undefined ? [] : ['--as', as])]
  try {
    await work({ api, commandLine: (rest) => ['opledger', rest, ...same.map(quoted)].join(' ') })
  } finally {
    await api.close()
  }
}

export const printJson = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)

/** For options that may be given several times, and take lists with commas. */
export const collect = (text: string, before: string[] | undefined): string[] => [
  ...(before ?? []),
  ...text.split(',').map((part) => part.trim()),
]

/** For options that may be given several times, each as it is. */
export const append = (text: string, before: string[] | undefined): string[] => [...(before ?? []), text]
