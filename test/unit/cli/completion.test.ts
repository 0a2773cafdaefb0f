import { execFileSync } from 'node:child_process'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { COMPLETIONS, listCommands } from '../../../src/cli/completion.ts'
import { buildProgram } from '../../../src/cli/program.ts'

const commands = listCommands(buildProgram())

/** What bash offers behind these words. */
const completed = (...words: string[]): string[] => {
  const script = `${COMPLETIONS.bash(commands)}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _opledger; printf '%s\\n' "\${COMPREPLY[@]}"`
  return execFileSync('bash', ['-c', script, 'bash', 'opledger', ...words], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean)
}

/** What `--help` prints. */
const helpOf = (path: string): string => {
  const parts: string[] = []
  let command: Command | undefined = buildProgram()
  for (const name of path.split(' ')) command = command?.commands.find((child) => child.name() === name)
  command?.configureOutput({ writeOut: (part) => parts.push(part) }).outputHelp()
  return parts.join('')
}

describe('the help', () => {
  const leaves = commands.filter(({ path, subcommands }) => path !== '' && subcommands.length === 0)

  it.each(leaves.map(({ path }) => path))('of %s has an example of it', (path) => {
    expect(helpOf(path).split('Examples:')[1]).toContain(`opledger ${path}`)
  })
})

describe('completion', () => {
  it('knows every command, each with a description', () => {
    const paths = commands.map(({ path }) => path)
    for (const path of [
      'submit',
      'watch',
      'cancel',
      'preflight',
      'replay',
      'reconcile resolve',
      'incidents list',
      'health',
      'keys create',
      'migrate',
      'openapi',
      'completion',
    ]) {
      expect(paths).toContain(path)
    }
    expect(commands.filter(({ description }) => description === '')).toEqual([])
  })

  it('offers commands, then the options of the one that is named', () => {
    expect(completed('')).toEqual(expect.arrayContaining(['submit', 'watch', 'health']))
    expect(completed('sub')).toEqual(['submit'])
    expect(completed('watch', 'op_1', '--j')).toEqual(['--json'])
    expect(completed('reconcile', '')).toEqual(expect.arrayContaining(['list', 'show', 'lookup', 'resolve']))
    expect(completed('reconcile', 'resolve', '--ev')).toEqual(['--evidence'])
    expect(completed('replay', 'op_1', '--re')).toEqual(['--reason'])
  })

  it('offers files where a command takes one', () => {
    expect(completed('submit', 'package.j')).toEqual(['package.json'])
    expect(completed('watch', 'package.j')).toEqual([])
  })

  it.each(['zsh', 'fish'] as const)('has every command and option for %s', (shell) => {
    const script = COMPLETIONS[shell](commands)
    for (const { subcommands, options } of commands) {
      for (const { name } of subcommands) expect(script).toContain(name)
      for (const { long } of options) expect(script).toContain(shell === 'fish' ? `-l ${long.slice(2)}` : long)
    }
    // an apostrophe in a description must not end the text of the shell
    expect(script.replaceAll("'\\''", '').split("'").length % 2).toBe(1)
  })
})
