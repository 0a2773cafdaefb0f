import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { waitForExit } from './processes.ts'

/**
 * The shell blocks of our documents, run by a shell as they stand there. What a command prints is the comment below it.
 */
export interface ShellBlock {
  /** The heading it stands under, such as `## Start`. */
  heading: string
  text: string
}

interface Command {
  text: string
  /** Null: the document says nothing of what it prints. */
  prints: string | null
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** Ends the output of one command; its expected output is the comment that follows. */
const SEPARATOR = '\u001e'

/** A shell that has not ended by then is killed; what it did not print is told as a difference. */
const SHELL_MS = 270_000

/** `file` is relative to the root of the project. */
export const shellBlocksOf = (file: string): ShellBlock[] => {
  const blocks: ShellBlock[] = []
  let heading = ''
  const parts = readFileSync(`${ROOT}${file}`, 'utf8').matchAll(/^```(\w*)\n([\s\S]*?)^```$|^(#{1,3} .*)$/gm)
  for (const [, language, text, title] of parts) {
    if (title !== undefined) heading = title
    else if (language === 'sh' && text !== undefined) blocks.push({ heading, text })
  }
  return blocks
}

/** The commands of a block, each with what the document says that it prints. */
export const commandsOf = ({ text }: ShellBlock): Command[] => {
  const commands: Command[] = []
  let lines: string[] = []
  const end = (prints: string | null) => {
    if (lines.some((line) => line !== '')) commands.push({ text: lines.join('\n'), prints })
    lines = []
  }
  for (const line of text.split('\n')) {
    const last = commands.at(-1)
    if (!line.startsWith('# ')) lines.push(line)
    else if (lines.length > 0) end(line.slice(2))
    else if (last) last.prints = `${last.prints} ${line.slice(2)}`
  }
  end(null)
  return commands
}

const words = (text: string): string => text.replace(/\s+/g, ' ').trim()

/** A remark stands in parentheses behind the output, `…` for anything, and large numbers differ from run to run. */
const pattern = (prints: string): RegExp => {
  const plain = words(prints.replace(/ {3,}\([^)]*\)/g, ''))
  const escaped = plain.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`^${escaped.replace(/\d{3,}/g, '\\d+').replace(/…/g, '.*')}$`)
}

export interface WalkSettings {
  /** What stands in the documents, and what the shell gets instead: where the servers of the test are. */
  instead: Readonly<Record<string, string>>
  env?: Readonly<Record<string, string>>
}

const run = async (commands: readonly Command[], { instead, env }: WalkSettings): Promise<string[]> => {
  let script = commands.map(({ text }) => `${text}\nprintf '${SEPARATOR}'`).join('\n')
  for (const [written, real] of Object.entries(instead)) script = script.replaceAll(written, real)
  const shell = spawn('bash', ['-c', script], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: SHELL_MS,
  })
  let output = ''
  let errors = ''
  shell.stdout.on('data', (chunk) => {
    output += String(chunk)
  })
  shell.stderr.on('data', (chunk) => {
    errors += String(chunk)
  })
  await waitForExit(shell)
  expect(errors).toBe('')
  return output.split(SEPARATOR).map(words)
}

/** Runs the blocks in one shell, and holds each output against the comment that foretells it. */
export const walk = async (blocks: readonly ShellBlock[], settings: WalkSettings): Promise<void> => {
  const commands = blocks.flatMap(commandsOf)
  const printed = await run(commands, settings)
  expect(commands.filter(({ prints }) => prints !== null).length).toBeGreaterThan(1)
  for (const [index, { text, prints }] of commands.entries()) {
    if (prints !== null) expect(printed[index], text).toMatch(pattern(prints))
  }
}
