/** `opledger completion bash|zsh|fish`: a script made from the commands themselves, so that it never lags behind them. */
import { Argument, type Command } from 'commander'

export interface CompletedCommand {
  /** Below the program: `reconcile list`; empty for the program itself. */
  path: string
  description: string
  subcommands: { name: string; description: string }[]
  options: { long: string; description: string; takesValue: boolean }[]
  takesFile: boolean
}

/** What commands whose first argument is a file call it. */
const FILE_ARGUMENTS = ['file']

/** The program and every command below it. */
export const listCommands = (program: Command): CompletedCommand[] => {
  const found: CompletedCommand[] = []
  const visit = (command: Command, path: string): void => {
    const subcommands = command.commands.map((child) => ({ name: child.name(), description: child.description() }))
    const options = command.options.flatMap(({ long, description, required, optional }) =>
      long === undefined || long === null ? [] : [{ long, description, takesValue: required || optional }],
    )
    const takesFile = command.registeredArguments.some((argument) => FILE_ARGUMENTS.includes(argument.name()))
    found.push({
      path,
      description: command.description(),
      subcommands,
      options: [...options, { long: '--help', description: 'what it does, with examples', takesValue: false }],
      takesFile,
    })
    for (const child of command.commands) visit(child, `${path} ${child.name()}`.trim())
  }
  visit(program, '')
  return found
}

/** For single quotes of a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const wordsOf = ({ subcommands, options }: CompletedCommand): string =>
  [...subcommands.map(({ name }) => name), ...options.map(({ long }) => long)].join(' ')

/** Which command the words so far name. (`path` would be the PATH of zsh.) */
const pathCases = (commands: readonly CompletedCommand[]): string => {
  const paths = commands.filter(({ path }) => path !== '').map(({ path }) => `"${path}"`)
  return `    case "\${at:+$at }$word" in\n      ${paths.join('|')}) at="\${at:+$at }$word" ;;\n    esac`
}

const bash = (commands: readonly CompletedCommand[]): string => `# bash completion of opledger
_opledger() {
  local current="\${COMP_WORDS[COMP_CWORD]}" at="" word files=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
${pathCases(commands)}
  done
  case "$at" in
${commands
  .map((one) => {
    const files = one.takesFile ? ' files=1' : ''
    return `    ${quoted(one.path)})${files} COMPREPLY=($(compgen -W ${quoted(wordsOf(one))} -- "$current")) ;;`
  })
  .join('\n')}
  esac
  if [[ -n "$files" && "$current" != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}
complete -o filenames -F _opledger opledger
`

/** A colon ends the word in what \`_describe\` reads. */
const described = (name: string, description: string): string =>
  quoted(`${name.replaceAll(':', '\\:')}:${description.replaceAll(':', '\\:')}`)

const zsh = (commands: readonly CompletedCommand[]): string => `#compdef opledger
_opledger() {
  local at="" word files=""
  local -a names flags
  for word in "\${(@)words[2,CURRENT-1]}"; do
${pathCases(commands)}
  done
  case "$at" in
${commands
  .map(({ path, subcommands, options, takesFile }) =>
    [
      `    ${quoted(path)})`,
      `      names=(${subcommands.map(({ name, description }) => described(name, description)).join(' ')})`,
      `      flags=(${options.map(({ long, description }) => described(long, description)).join(' ')})`,
      ...(takesFile ? ['      files=1'] : []),
      '      ;;',
    ].join('\n'),
  )
  .join('\n')}
  esac
  (( \${#names} )) && _describe command names
  if [[ "$PREFIX" == -* ]]; then _describe option flags; elif [[ -n "$files" ]]; then _files; fi
}
if [[ "$funcstack[1]" == _opledger ]]; then _opledger "$@"; else compdef _opledger opledger; fi
`

const fishCondition = (path: string): string => {
  if (path === '') return '__fish_use_subcommand'
  return path
    .split(' ')
    .map((name) => `__fish_seen_subcommand_from ${name}`)
    .join('; and ')
}

const fish = (commands: readonly CompletedCommand[]): string =>
  [
    '# fish completion of opledger',
    'complete -c opledger -f',
    ...commands.flatMap(({ path, subcommands, options, takesFile }) => {
      const names = subcommands.map(({ name }) => name).join(' ')
      // a group offers its subcommands until one of them is there
      const open = path !== '' && names !== '' ? `; and not __fish_seen_subcommand_from ${names}` : ''
      const condition = quoted(`${fishCondition(path)}${open}`)
      return [
        ...subcommands.map(
          ({ name, description }) => `complete -c opledger -n ${condition} -a ${name} -d ${quoted(description)}`,
        ),
        ...options.map(
          ({ long, description, takesValue }) =>
            `complete -c opledger -n ${condition} -l ${long.slice(2)}${takesValue ? ' -r' : ''} -d ${quoted(description)}`,
        ),
        ...(takesFile ? [`complete -c opledger -n ${condition} -F`] : []),
      ]
    }),
    '',
  ].join('\n')

export const COMPLETIONS = { bash, zsh, fish } as const
type Shell = keyof typeof COMPLETIONS

const HELP = `
Examples:
  opledger completion bash > ~/.local/share/bash-completion/completions/opledger
  opledger completion zsh  > "\${fpath[1]}/_opledger"
  opledger completion fish > ~/.config/fish/completions/opledger.fish
`

/** `opledger completion`. */
export const addCompletionCommand = (program: Command): void => {
  program
    .command('completion')
    .description('print a script that completes commands and options')
    .addArgument(new Argument('<shell>', 'which one').choices(Object.keys(COMPLETIONS)))
    .addHelpText('after', HELP)
    .action((shell: Shell) => void process.stdout.write(COMPLETIONS[shell](listCommands(program))))
}
